"""A client's failure detectors: the brokers that it can use now, and so the broker of an item that it publishes to.

- A broker whose connection is lost cannot be used, at once.
- One that is silent is asked (PING) every `ask_every`, and cannot be used when it has not answered for `silence`, or
  for longer than its recent answers took (as TCP's time-out: RFC 6298), up to SILENCE_MAX. A stopped process keeps its
  connections, so there is no other signal.
- One that has left messages unacknowledged for STALL is a bottleneck, and is not used while that lasts.
- It can be used again after it has answered for RETURN; this time doubles with every further failure, so that a client
  does not switch back and forth.
- Time in which the client itself was not running does not count.

An item uses its primary if possible, otherwise its mirror if possible, otherwise the primary. So a failure moves only
the items of that broker.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.items.directory import Entry

ASK_EVERY: Nanos = 50 * MS
SILENCE: Nanos = 150 * MS
SILENCE_MAX: Nanos = 1 * SECOND
STALL: Nanos = 1 * SECOND
RETURN: Nanos = 2 * SECOND
RETURN_MAX: Nanos = 60 * SECOND
FORGIVEN: Nanos = 120 * SECOND


@dataclass(slots=True)
class _Health:
    is_connected: bool = False
    heard_at: Nanos = 0
    asked_at: Nanos = NEVER
    """When the oldest question was asked that has not been answered."""
    asked_last: Nanos = 0
    answer_ns: Nanos = 0
    """How long answers take, smoothed, and how much that varies."""
    varies_ns: Nanos = 0
    unanswered_since: Nanos = NEVER
    """Since when a message is not acknowledged."""
    is_usable: bool = False
    was_usable: bool = False
    good_since: Nanos = NEVER
    back_at: Nanos = 0
    relapses: int = 0


@dataclass(slots=True)
class Switching:
    ask_every: Nanos = ASK_EVERY
    silence: Nanos = SILENCE
    _brokers: dict[str, _Health] = field(default_factory=dict)
    _ticked_at: Nanos = NEVER

    # Events of sessions

    def connected(self, broker: str, now: Nanos) -> bool:
        """Whether that changes what can be used."""
        health = self._of(broker)
        health.is_connected, health.heard_at = True, now
        health.asked_at = health.unanswered_since = NEVER
        if not health.was_usable:
            health.was_usable = health.is_usable = True  # the first time there is nothing to forgive
            return True
        return self._judge(health, now)

    def lost(self, broker: str, now: Nanos) -> bool:
        health = self._of(broker)
        health.is_connected = False
        return self._judge(health, now)

    def heard(self, broker: str, now: Nanos) -> None:
        """Any packet of this broker."""
        health = self._of(broker)
        if health.asked_at < NEVER:
            took = max(0, now - health.asked_at)
            health.varies_ns += (abs(took - health.answer_ns) - health.varies_ns) // 4
            health.answer_ns += (took - health.answer_ns) // 8
        health.heard_at, health.asked_at = now, NEVER

    def waits_since(self, broker: str, since: Nanos) -> None:
        """The oldest message that the broker has not acknowledged was sent then; NEVER: there is none."""
        self._of(broker).unanswered_since = since

    def forget(self, broker: str) -> None:
        self._brokers.pop(broker, None)

    # Time

    def tick(self, now: Nanos) -> tuple[list[str], list[str]]:
        """Brokers to be asked now, and those that can be used now or not any more."""
        if now > self._ticked_at + 2 * self.ask_every:
            for health in self._brokers.values():
                health.asked_at = NEVER if health.asked_at >= NEVER else now
        self._ticked_at = now
        asked, changed = [], []
        for name in sorted(self._brokers):
            health = self._brokers[name]
            if health.is_connected and now >= max(health.heard_at, health.asked_last) + self.ask_every:
                health.asked_at, health.asked_last = min(health.asked_at, now), now
                asked.append(name)
            if self._judge(health, now):
                changed.append(name)
        return asked, changed

    def next_deadline(self) -> Nanos:
        """The ticks are one `ask_every` apart as long as there is a connection."""
        if not any(one.is_connected for one in self._brokers.values()):
            return NEVER
        return self._ticked_at + self.ask_every if self._ticked_at < NEVER else 0

    # Choice

    def is_usable(self, broker: str) -> bool:
        return broker in self._brokers and self._brokers[broker].is_usable

    def is_connected(self, broker: str) -> bool:
        return broker in self._brokers and self._brokers[broker].is_connected

    def target(self, entry: Entry) -> str:
        """Where messages of the item go."""
        if entry.mirror is None or self.is_usable(entry.primary.broker):
            return entry.primary.broker
        if self.is_usable(entry.mirror.broker):
            return entry.mirror.broker
        # Neither is good: one that is connected and slow is better than one that is lost.
        ranked: Iterable[str] = (entry.primary.broker, entry.mirror.broker)
        return next((one for one in ranked if self.is_connected(one)), entry.primary.broker)

    def _of(self, broker: str) -> _Health:
        return self._brokers.setdefault(broker, _Health())

    def _judge(self, health: _Health, now: Nanos) -> bool:
        patience = max(self.silence, min(SILENCE_MAX, health.answer_ns + 4 * health.varies_ns))
        is_silent = health.asked_at < NEVER and now >= health.asked_at + patience
        is_stalled = health.unanswered_since < NEVER and now >= health.unanswered_since + STALL
        if not health.is_connected or is_silent or is_stalled:
            health.good_since = NEVER
            if not health.is_usable:
                return False
            health.is_usable = False
            is_relapse = bool(health.back_at) and now < health.back_at + FORGIVEN
            health.relapses = health.relapses + 1 if is_relapse else 0
            return True
        if health.is_usable:
            return False
        health.good_since = min(health.good_since, now)
        if now < health.good_since + min(RETURN << min(health.relapses, 8), RETURN_MAX):
            return False
        health.is_usable, health.back_at = True, now
        return True
