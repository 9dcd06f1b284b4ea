"""A neighbour: everything that belongs to one link.

Out: control frames first, in order and numbered; then pings, pongs and notices; then parcels as the link queue
orders them. In: bytes are cut into frames; the first must be a greeting, control frames must come in their order.
Watched parcels of which no notice came in time are handed back, to be repaired; every answer measures the link.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import cast

from overlane.core import wire
from overlane.core.events import Lane
from overlane.core.interest import Assembly
from overlane.core.linkhealth import LinkHealth, LinkState
from overlane.core.linkqueue import LinkQueue, Waiting
from overlane.core.messages import REASON_LENGTH_MAX, Farewell, LinkClaim, Message, encode
from overlane.core.units import MS, NEVER, US, Nanos
from overlane.core.watch import NOTICE_DELAY, Noticing, Watch
from overlane.core.wire import AGE_US_MAX, Header, Notice, ParcelFlag, RouteName
from overlane.errors import ProtocolViolation

GREETING_WITHIN: Nanos = 5000 * MS
CONTROL_BYTES_MAX = 8 << 20
NOTICE_AHEAD: Nanos = 25 * MS
"""A notice that would be due so soon does not wait when a parcel goes the same way."""
LATE_MIN: Nanos = 1 * MS
"""A broker that looks at its links so much later than it wanted to was busy, or not let run."""
ASK_GAP: Nanos = 15 * MS
"""Where there is only nearly time for a repair, one parcel in so long asks for its notice at once; it tells of all."""
PROMPT_LAXITY: Nanos = 150 * MS
"""Who has more time to spare than this can wait for a notice that comes together with others."""
HURRY = 4
"""Who has less than one in so many parts of the time that a notice takes cannot be helped by any."""
URGENT_MAX = 4096
"""Pings, pongs and notices that wait; who asks for more answers than it takes gets the latest."""

_PROMPT = int(ParcelFlag.PROMPT)
_REPAIR = int(ParcelFlag.REPAIR)
_WATCHED = int(ParcelFlag.WATCHED)

_CONTROL, _DATA = Lane.CONTROL, Lane.DATA

Chunk = tuple[Lane, bytes]


@dataclass(slots=True)
class Outgoing:
    """A parcel on its way to one neighbour: by its route, or, as a detour, by the path it carries."""

    header: Header
    rest: bytes | memoryview
    entered_ns: Nanos
    """When it came into this broker; its header's age is of that moment."""
    due_ns: Nanos
    ahead_ns: Nanos
    hop_count: int = 1
    """Of its whole way."""
    hops: tuple[int, ...] = ()
    position: int = 0
    description: bytes = b""
    """The ROUTE frame that goes ahead of it while the neighbour may not know the route."""
    repairs: int = 0
    """How often it may still be repaired on this link."""
    is_repair: bool = False
    """It has been sent before, or waits no longer than it did elsewhere: no measure of this broker's own delay."""


@dataclass(slots=True)
class Signals:
    """What a broker's neighbours tell it, so that it need not ask each of them at every turn."""

    woken: bool = True
    """The next deadline of one of them may be later than it was."""
    wake_at: Nanos = NEVER
    """The next deadline of all of them, unless `woken`."""
    touched: bool = True
    """Something was learned of one of the links."""
    ready: set[str] = field(default_factory=set)
    """Who has something to send."""


class Neighbour:
    def __init__(
        self, name: str, scheduling: str, queue_bytes_max: int, ping_interval_ns: Nanos, signals: Signals | None = None
    ) -> None:
        self.name = name
        self._signals = signals or Signals()
        self.identity = wire.broker_id(name)
        self.health = LinkHealth(ping_interval_ns)
        self.queue = LinkQueue(scheduling, queue_bytes_max)
        self.incarnation = 0
        self.reported_state = LinkState.FAILED
        self.claimed: LinkClaim | None = None
        """What was last advertised of this link."""
        self._reset()

    def _reset(self) -> None:
        self._wake_at: Nanos | None = None
        self.touch()
        self._signals.ready.discard(self.name)
        self.connected = False
        self.greeted = False
        self._greeting_due: Nanos = NEVER
        self._control_out: deque[bytes] = deque()
        self._control_bytes = 0
        self._control_sent = 0
        self._control_seen = 0
        self._urgent: deque[bytes] = deque(maxlen=URGENT_MAX)
        self.leftover: dict[Lane, bytes] = {}
        """Frames that have come in part."""
        self.assembly = Assembly()
        self.parked: tuple[bytes, RouteName, int, int, Nanos] | None = None
        """A parcel frame that waits alone, its route, how old it was, how many messages it has, and when that was."""
        self._asked_ns: Nanos = -NEVER
        """When a parcel was last sent that asked for its notice at once."""
        self._watch: Watch[Outgoing] = Watch()
        self.noticing = Noticing()
        self._looks_again = False

    # The life of the connection

    def connect(self, me: str, incarnation: int, now: Nanos) -> None:
        self._reset()
        self.connected = True
        self._greeting_due = now + GREETING_WITHIN
        self._push_control(wire.hello(me, incarnation))

    def greet(self, incarnation: int, now: Nanos) -> None:
        """Its greeting came: the link is open for everything else."""
        self.greeted = True
        self.incarnation = incarnation
        self.health.connected(now)
        self.touch()

    def disconnect(self, now: Nanos, *, is_replaced: bool = False) -> list[Outgoing]:
        """The connection is gone, or another takes its place; returns the parcels that were waiting for it or of which
        no notice came."""
        stranded = [*self._watch.take_all(), *(cast(Outgoing, item.chunk) for item in self.queue.drain())]
        self._reset()
        if not is_replaced:
            self.health.broken(now)
        return stranded

    # Out

    def send(self, message: Message) -> None:
        if not self.connected:
            return
        self._push_control(wire.control(self._control_sent, encode(message)))
        self._control_sent = (self._control_sent + 1) & 0xFFFFFFFF

    def farewell(self, reason: str) -> bytes:
        """What to say before the connection is closed."""
        return wire.control(self._control_sent, encode(Farewell(reason[:REASON_LENGTH_MAX])))

    def send_urgent(self, frame: bytes) -> None:
        self._urgent.append(frame)
        self._signals.ready.add(self.name)

    def enqueue(self, item: Waiting, now: Nanos) -> list[Waiting]:
        """A parcel for this neighbour; returns what had to go for lack of room."""
        self._signals.ready.add(self.name)
        if self.parked is not None:
            frame, name, age_us, _, entered_ns = self.parked
            self.parked = None
            header, rest = wire.read_parcel(memoryview(frame)[wire.FRAME_OVERHEAD :], name)
            out = Outgoing(header._replace(age_us=age_us), rest, entered_ns, NEVER, 0)
            self.queue.push(Waiting(out, len(frame), entered_ns, NEVER, droppable=True), entered_ns)
        return self.queue.push(item, now)

    def takes(self, size: int) -> bool:
        """Whether a reliable parcel of this size finds room, or will not find any by waiting."""
        return not self.connected or self.queue.takes(size)

    @property
    def is_free(self) -> bool:
        """Whether a parcel can be parked: none waits."""
        return self.parked is None and self.connected and self.queue.is_empty

    def park(self, frame: bytes, name: RouteName, age_us: int, messages: int, now: Nanos) -> None:
        """Let a plain parcel leave as the frame that it is, unless another comes before; it has this age now."""
        self._signals.ready.add(self.name)
        self.parked = frame, name, age_us, messages, now

    @property
    def queue_bytes(self) -> int:
        return self.queue.bytes + (len(self.parked[0]) if self.parked is not None else 0)

    def is_mute(self, now: Nanos) -> bool:
        """The connection stands, but no greeting came."""
        return self.connected and not self.greeted and now >= self._greeting_due

    @property
    def choked(self) -> bool:
        """Control frames pile up: the link claims to run while it is blocked."""
        return self._control_bytes > CONTROL_BYTES_MAX

    @property
    def has_words(self) -> bool:
        """Whether there is something to send that is not a parcel."""
        return bool(self._control_out or self._urgent)

    def pull_control(self) -> Chunk | None:
        """The next chunk that is not a parcel."""
        if self._control_out:
            frame = self._control_out.popleft()
            self._control_bytes -= len(frame)
            return _CONTROL, frame
        if self._urgent:
            return _DATA, self._urgent.popleft()
        return None

    def pull_word(self) -> bytes | None:
        """The next ping, pong or notice."""
        return self._urgent.popleft() if self._urgent else None

    def pull_notice(self, now: Nanos) -> bytes:
        """The notice that is not due yet, but soon: it costs next to nothing behind a parcel that goes there anyway."""
        self._wake()
        return wire.notice(*self.noticing.take(now))

    def pull_parcel(
        self, now: Nanos, in_buffer: int, is_urgent: bool = False
    ) -> tuple[Outgoing | None, bytes, list[Waiting]]:
        """The parcel to send next with its bytes, and what is no longer worth sending."""
        item, dropped = self.queue.pull_urgent(now, in_buffer) if is_urgent else self.queue.pull(now, in_buffer)
        if item is None:
            return None, b"", dropped
        out: Outgoing = item.chunk  # type: ignore[assignment]  # nothing else is ever queued here
        return out, self._transmit(out, now), dropped

    def _transmit(self, out: Outgoing, now: Nanos) -> bytes:
        """The bytes of a parcel as it leaves: older by the time it spent here, and numbered if it is watched."""
        header = out.header
        age_us = header.age_us + (now - out.entered_ns) // US
        if age_us > AGE_US_MAX:
            age_us = AGE_US_MAX
        number = 0
        if header.flags & _WATCHED:
            patience_ns = self.health.patience_ns
            # A notice at once is of use where what is lost can be sent again in time, but not much later; and where
            # there is nearly time for that: the sooner a change is known, the fewer follow over the link in vain.
            laxity_ns = out.due_ns - now
            prompt = bool(header.flags & _REPAIR) and laxity_ns < PROMPT_LAXITY and patience_ns <= HURRY * laxity_ns
            if prompt and patience_ns > laxity_ns:
                prompt = now >= self._asked_ns + ASK_GAP
            if prompt:
                self._asked_ns = now
                header = header._replace(flags=header.flags | _PROMPT)
            elif header.flags & _PROMPT:
                header = header._replace(flags=header.flags & ~_PROMPT)
            number = self._watch.add(out, prompt, now)
            self._wake_by(now + patience_ns if prompt else now + patience_ns + NOTICE_DELAY)
        if out.hops:
            header = header._replace(age_us=age_us, hop_sequence=number)
            return wire.detour(out.hops, out.position, header, out.rest)
        if out.description:
            return out.description + wire.parcel(header, out.rest, age_us, number)
        return wire.parcel(header, out.rest, age_us, number)

    # In

    def frames(self, data: bytes, lane: Lane) -> list[tuple[int, memoryview]]:
        if self.leftover and (leftover := self.leftover.pop(lane, b"")):
            data = leftover + data
        frames, used = wire.split(data)
        if used < len(data):
            self.leftover[lane] = data[used:]
        return frames

    def check_order(self, sequence: int) -> None:
        if sequence != self._control_seen:
            raise ProtocolViolation(f"control frame {sequence} where {self._control_seen} was due: replayed or lost")
        self._control_seen = (self._control_seen + 1) & 0xFFFFFFFF

    def answered(self, token: int, now: Nanos) -> None:
        self.touch()
        self.health.answered(token, now)

    def ask(self, at: Nanos) -> None:
        """Another link of this broker has changed; this one may have, too."""
        if self.greeted:
            self.health.ask(at)
            self._wake()

    def notice_parcel(self, header: Header, now: Nanos) -> None:
        """A watched parcel came in: remember to say so."""
        if header.hop_sequence:
            noticing = self.noticing
            noticing.came(header.hop_sequence, bool(header.flags & _PROMPT), now)
            self._wake_by(noticing.due_ns)

    def noticed(self, notice: Notice, now: Nanos) -> None:
        """The neighbour tells what it has got."""
        self.touch()
        told = self._watch.noticed(notice, now)
        for _ in range(told.lost):
            self.health.lost(now)
        self.health.came(told.came)
        if told.rtt_ns is not None:
            self.health.observed(told.rtt_ns, now, told.late)
            self.health.attested(now)

    # Time

    def next_deadline(self) -> Nanos:
        if self._wake_at is None:
            self._wake_at = self._find_deadline()
        return self._wake_at

    def _find_deadline(self) -> Nanos:
        if not self.connected:
            return NEVER
        if not self.greeted:
            return self._greeting_due
        patience_ns = self.health.patience_ns
        return min(self.health.next_deadline(), self.noticing.due_ns, self._watch.next_overdue(patience_ns))

    def touch(self) -> None:
        """Something was learned of the link: its next deadline and its claim may be others now."""
        self.touched = True
        self._signals.touched = True
        self._wake()

    def _wake(self) -> None:
        self._wake_at = None
        self._signals.woken = True

    def _wake_by(self, when: Nanos) -> None:
        """One more thing is to be done at this time; what was to be done before stays as it was."""
        if self._wake_at is not None and when < self._wake_at:
            self._wake_at = when
            if when < self._signals.wake_at:
                self._signals.wake_at = when

    def tick(self, now: Nanos) -> list[Outgoing]:
        """Pings and notices that are due go out; watched parcels that are overdue are handed back.

        Where this broker itself comes late, the answers may have come and lie unread: it looks once more after it has
        read them before it blames the link.
        """
        is_late = now - self.next_deadline() > LATE_MIN
        self._wake()
        if not self.greeted:
            return []
        self.touch()
        self._looks_again = is_late and not self._looks_again
        overdue = [] if self._looks_again else self._watch.take_overdue(self.health.patience_ns, now)
        for _ in overdue:
            self.health.silent(now)
        if (token := self.health.tick(now, judges=not self._looks_again)) is not None:
            self.send_urgent(wire.ping(token))
        if now >= self.noticing.due_ns:
            self.send_urgent(wire.notice(*self.noticing.take(now)))
        return overdue

    def take_watched(self) -> list[Outgoing]:
        """All parcels without notice, when there is no more reason to expect one."""
        self._wake()
        return self._watch.take_all()

    def _push_control(self, frame: bytes) -> None:
        self._control_out.append(frame)
        self._control_bytes += len(frame)
        self._signals.ready.add(self.name)
