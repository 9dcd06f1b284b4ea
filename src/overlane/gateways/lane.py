"""A lane: messages in transit from one side of a gateway to the other; pure.

    arrived     messages that wait here, in their order; each has a number
    under way   messages that were given to the receiving side, which has not answered yet

A message is acknowledged to its sender when the other side has accepted it, so acknowledged messages are never only
here: after a crash the sending side delivers unacknowledged ones again. Messages that are not forwarded (no name on the
other side, a loop) are acknowledged at once and counted.

When the receiving side loses its connection, messages in transit wait again, in the old order. A permanent refusal ends
a message; it is counted and reported. After a temporary refusal the message is sent again after a pause.

After an outage of either side there may be a backlog. It is forwarded at no more than `backlog_rate` messages per
second, until no message has waited here for `CAUGHT_UP`, so that subscribers and the broker on the other side are not
overloaded. Messages that arrive meanwhile wait behind it, at their sender.

Limits: at most `WINDOW` messages are in transit, and the sending side has at most its own window unacknowledged. A side
that cannot wait, such as core NATS, checks `is_full` and drops messages itself.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.gateways.message import BridgedMessage

WINDOW = 500
QUEUE_MAX = 10_000
QUEUE_BYTES_MAX = 32 * 2**20
CAUGHT_UP: Nanos = 500 * MS
RETRY: Nanos = 1 * SECOND
BURST: Nanos = 100 * MS
"""While a backlog is passed on, this much of a second's messages may go at once."""


@dataclass(frozen=True, slots=True)
class Send:
    number: int
    message: BridgedMessage


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """To the side that it came from."""

    number: int


LaneEffect: TypeAlias = Send | Acknowledge


@dataclass(slots=True)
class LaneCounts:
    passed: int = 0
    looped: int = 0
    """Not passed on: they came from there."""
    unnamed: int = 0
    """Not passed on: they have no name there."""
    refused: int = 0
    dropped: int = 0
    """By a side that cannot wait."""


@dataclass(slots=True)
class GatewayLane:
    translate: Callable[[BridgedMessage], BridgedMessage | str]
    """The message as it goes to the other side, or why it does not: "looped" or "unnamed"."""
    backlog_rate: int | None
    counts: LaneCounts = field(default_factory=LaneCounts)
    last_error: str = ""
    _waiting: deque[tuple[int, BridgedMessage]] = field(default_factory=deque)
    _waiting_bytes: int = 0
    _under_way: dict[int, BridgedMessage] = field(default_factory=dict)
    _numbers: int = 0
    _is_open: bool = False
    _is_metered: bool = False
    _tokens_ns: int = 0
    """Time for which messages may be sent while metered."""
    _tokens_at: Nanos = 0
    _empty_since: Nanos = NEVER
    _retry_at: Nanos = 0

    # Events

    def arrived(self, message: BridgedMessage, now: Nanos) -> tuple[int, list[LaneEffect]]:
        """A message of the sending side; its number."""
        self._numbers += 1
        number = self._numbers
        match self.translate(message):
            case BridgedMessage() as translated:
                self._put(number, translated)
                return number, self._pump(now)
            case why:
                setattr(self.counts, why, getattr(self.counts, why) + 1)
                return number, [Acknowledge(number)]

    def accepted(self, number: int, now: Nanos) -> list[LaneEffect]:
        """The receiving side has it for good."""
        if self._under_way.pop(number, None) is None:
            return []
        self.counts.passed += 1
        return [Acknowledge(number), *self._pump(now)]

    def refused(self, number: int, reason: str, now: Nanos, *, is_final: bool) -> list[LaneEffect]:
        message = self._under_way.pop(number, None)
        if message is None:
            return []
        self.last_error = f"{message.topic[:200]}: {reason}"
        if is_final:
            self.counts.refused += 1
            return [Acknowledge(number), *self._pump(now)]
        self._put_back({number: message})
        self._retry_at = now + RETRY
        return []

    def opened(self, now: Nanos) -> list[LaneEffect]:
        """The receiving side is connected."""
        self._is_open = True
        self._retry_at = 0
        return [*self._meter(now), *self._pump(now)]

    def closed(self, *, forgot: bool) -> None:
        """The receiving side is not connected. `forgot`: it has forgotten what was under way, and does not send it."""
        self._is_open = False
        if forgot:
            self._put_back(self._under_way)
            self._under_way = {}

    def source_opened(self, now: Nanos) -> list[LaneEffect]:
        """The sending side is connected, and may have kept messages meanwhile."""
        return self._meter(now)

    def source_forgot(self) -> None:
        """The sending side will deliver again all that it has not been acknowledged."""
        self._waiting.clear()
        self._waiting_bytes = 0

    def tick(self, now: Nanos) -> list[LaneEffect]:
        if self._is_metered and self._is_empty and now - self._empty_since >= CAUGHT_UP:
            self._is_metered = False
        return self._pump(now)

    # State

    @property
    def waiting(self) -> int:
        """Messages here that the receiving side has not accepted."""
        return len(self._waiting) + len(self._under_way)

    @property
    def is_metered(self) -> bool:
        return self._is_metered

    @property
    def is_full(self) -> bool:
        return self.waiting >= QUEUE_MAX or self._waiting_bytes >= QUEUE_BYTES_MAX

    def next_deadline(self) -> Nanos:
        if self._waiting and self._is_open and len(self._under_way) < WINDOW:
            return max(self._retry_at, self._tokens_at + self._cost_ns() - self._tokens_ns if self._is_metered else 0)
        if self._is_metered and self._is_empty:
            return self._empty_since + CAUGHT_UP
        return NEVER

    # Inside

    @property
    def _is_empty(self) -> bool:
        return not self._waiting and not self._under_way

    def _put(self, number: int, message: BridgedMessage) -> None:
        self._waiting.append((number, message))
        self._waiting_bytes += len(message.body)
        self._empty_since = NEVER

    def _put_back(self, messages: dict[int, BridgedMessage]) -> None:
        if not messages:
            return
        self._waiting = deque(sorted([*messages.items(), *self._waiting], key=lambda one: one[0]))
        self._waiting_bytes += sum(len(message.body) for message in messages.values())

    def _meter(self, now: Nanos) -> list[LaneEffect]:
        if self.backlog_rate is not None:
            self._is_metered = True
            self._tokens_ns, self._tokens_at = BURST, now
            self._empty_since = now if self._is_empty else NEVER
        return []

    def _cost_ns(self) -> int:
        return SECOND // self.backlog_rate if self.backlog_rate is not None else 0

    def _pump(self, now: Nanos) -> list[LaneEffect]:
        effects: list[LaneEffect] = []
        if self._is_metered:
            limit_ns = max(BURST, self._cost_ns())
            self._tokens_ns = min(limit_ns, self._tokens_ns + now - self._tokens_at)
            self._tokens_at = now
        while self._waiting and self._is_open and len(self._under_way) < WINDOW and now >= self._retry_at:
            if self._is_metered:
                if self._tokens_ns < self._cost_ns():
                    break
                self._tokens_ns -= self._cost_ns()
            number, message = self._waiting.popleft()
            self._waiting_bytes -= len(message.body)
            self._under_way[number] = message
            effects.append(Send(number, message))
        if self._is_empty and self._empty_since == NEVER:
            self._empty_since = now
        return effects
