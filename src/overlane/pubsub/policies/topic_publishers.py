"""The publishers of one topic: which are alive, which one owns the topic, and which periods were missed.

    publisher:  alive -- silent for its lease --> lost -- publishes --> alive

Each broker that gets messages of a topic judges for itself, by what arrives there: it does not matter whether the
publisher, its connection, its broker or the network has failed.

Exclusive ownership: the messages of one publisher are delivered, the strongest that is alive; of equally strong ones
that with the smallest name. A stronger one takes the topic over with its first message. Messages of others are kept
while the owner is silent. If the owner is lost, those of its successor are delivered, in their order: nothing that the
successor has published since the owner's last message is missing. As soon as the owner publishes, they are dropped.

A period is missed each time it passes without a message of a publisher that is not lost. Of many in a row the first,
second, fourth, eighth and so on are reported.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from overlane.core.units import NEVER, Nanos
from overlane.pubsub.message import Message
from overlane.pubsub.policies.policy import Offer

PUBLISHERS_MAX = 256
"""Of one topic. Of more, those that were lost longest ago are forgotten; while all are alive, others do not count."""
KEPT_MAX = 1_000
KEPT_BYTES_MAX = 4 * 2**20
"""Messages of publishers that do not own a topic; of more, the oldest are dropped."""


class PublisherChange(NamedTuple):
    """`kind`: alive, lost, or missed, with the number of periods in a row."""

    kind: str
    publisher: str
    missed: int = 0


class PublisherOutcome(NamedTuple):
    deliver: tuple[Message, ...] = ()
    changes: tuple[PublisherChange, ...] = ()


@dataclass(slots=True)
class Tracked:
    offer: Offer
    heard_ns: Nanos
    is_alive: bool = True
    missed: int = 0

    @property
    def lost_at(self) -> Nanos:
        return self.heard_ns + self.offer.lease_ns if self.is_alive and self.offer.lease_ns < NEVER else NEVER

    @property
    def missed_at(self) -> Nanos:
        if not self.is_alive or self.offer.period_ns >= NEVER:
            return NEVER
        return self.heard_ns + (self.missed + 1) * self.offer.period_ns

    @property
    def due_ns(self) -> Nanos:
        return min(self.lost_at, self.missed_at)

    @property
    def rank(self) -> tuple[int, str]:
        """The smallest owns the topic."""
        return -self.offer.strength, self.offer.publisher


class TopicPublishers:
    def __init__(self) -> None:
        self.publishers: dict[str, Tracked] = {}
        self.owner: str | None = None
        """Of a topic with exclusive ownership."""
        self._kept: deque[tuple[str, Message]] = deque()
        self._kept_bytes = 0

    @property
    def alive(self) -> list[str]:
        return sorted(name for name, one in self.publishers.items() if one.is_alive)

    def next_deadline(self) -> Nanos:
        return min((one.due_ns for one in self.publishers.values()), default=NEVER)

    def heard(self, offer: Offer, message: Message, now: Nanos) -> PublisherOutcome:
        """A publisher has published: what is delivered now, and what has changed by it."""
        earlier = self.expire(now)
        name = offer.publisher
        known = self.publishers.get(name)
        if known is None and not self._make_room():
            return PublisherOutcome(
                earlier.deliver if offer.is_exclusive else (*earlier.deliver, message), earlier.changes
            )
        changes = [*earlier.changes]
        if known is None or not known.is_alive:
            changes.append(PublisherChange("alive", name))
        self.publishers[name] = Tracked(offer, now)
        if not offer.is_exclusive:
            return PublisherOutcome((*earlier.deliver, message), tuple(changes))
        self._choose_owner()
        if self.owner == name:
            self._drop_kept()
            return PublisherOutcome((*earlier.deliver, message), tuple(changes))
        self._keep(name, message)
        return PublisherOutcome(earlier.deliver, tuple(changes))

    def expire(self, now: Nanos) -> PublisherOutcome:
        """Time has passed. Leases that have ended meanwhile count in their order."""
        deliver: list[Message] = []
        changes: list[PublisherChange] = []
        while True:
            due = min(self.publishers.values(), key=lambda one: (one.due_ns, one.rank), default=None)
            if due is None or due.due_ns > now:
                return PublisherOutcome(tuple(deliver), tuple(changes))
            name = due.offer.publisher
            if due.lost_at <= due.missed_at:
                due.is_alive = False
                changes.append(PublisherChange("lost", name))
                if self.owner == name:
                    self._choose_owner()
                    deliver += self._take_kept(self.owner)
                self._take_kept(name)
            else:
                due.missed += 1
                if due.missed & (due.missed - 1) == 0:
                    changes.append(PublisherChange("missed", name, due.missed))

    def _choose_owner(self) -> None:
        alive = [one for one in self.publishers.values() if one.is_alive]
        self.owner = min(alive, key=lambda one: one.rank).offer.publisher if alive else None

    def _make_room(self) -> bool:
        if len(self.publishers) < PUBLISHERS_MAX:
            return True
        lost = [(one.heard_ns, name) for name, one in self.publishers.items() if not one.is_alive]
        if lost:
            del self.publishers[min(lost)[1]]
        return bool(lost)

    def _keep(self, name: str, message: Message) -> None:
        self._kept.append((name, message))
        self._kept_bytes += message.size_bytes
        while len(self._kept) > KEPT_MAX or (self._kept_bytes > KEPT_BYTES_MAX and len(self._kept) > 1):
            self._kept_bytes -= self._kept.popleft()[1].size_bytes

    def _take_kept(self, name: str | None) -> Iterable[Message]:
        taken = [message for owner, message in self._kept if owner == name]
        self._kept = deque((owner, message) for owner, message in self._kept if owner != name)
        self._kept_bytes = sum(message.size_bytes for _, message in self._kept)
        return taken

    def _drop_kept(self) -> None:
        if self._kept:
            self._kept.clear()
            self._kept_bytes = 0
