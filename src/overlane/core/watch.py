"""Watching: did a parcel get over this hop?

Parcels that ask for it are numbered per hop. The receiver tells by notices which have come: at once where the sender
is in a hurry or where a number is missing, otherwise a little later for many together. The sender learns from a notice
what came, how long it took, and what is missing; what stays without notice for too long is overdue, and handed back.

A parcel that was overdue is remembered by its number: a later notice still tells whether it was lost or only late.

Where a link becomes quicker, later parcels overtake earlier ones. Those were sent on the slower link, and are given the
patience of then; otherwise all that were under way would be taken for lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from overlane.core.units import MS, NEVER, US, Nanos
from overlane.core.wire import Notice

NOTICE_DELAY: Nanos = 35 * MS
"""Less than the 40 ms for which TCP puts off its own acknowledgement: that then goes along."""
NOTICE_WINDOW = 64
REORDERED_MAX = 2
"""So many later parcels may come before one without its being taken for lost."""
WATCHED_MAX = 4096

T = TypeVar("T")


class Told(NamedTuple):
    """What a notice tells the sender."""

    came: int
    lost: int
    rtt_ns: Nanos | None
    late: bool
    """The round trip is of a parcel that had been given up."""


class Sent(NamedTuple, Generic[T]):
    parcel: T
    sent_ns: Nanos
    patience_ns: Nanos
    """By what was known of the link then."""


class Watch(Generic[T]):
    """The sender's side. Three queues, each in the order of sending, since each has a patience of its own."""

    def __init__(self) -> None:
        self._number = 0
        self._patience_ns: Nanos = 0
        """When last asked for what is overdue."""
        self._prompt: dict[int, Sent[T]] = {}
        self._patient: dict[int, Sent[T]] = {}
        self._missing: dict[int, Sent[T]] = {}
        """Later ones have come: their own notice will not be late for having been put off."""
        self._overdue: dict[int, Nanos] = {}

    def add(self, parcel: T, prompt: bool, now: Nanos) -> int:
        """Watch a parcel that is being sent; its number, 0 if there are too many to watch."""
        if len(self._prompt) + len(self._patient) + len(self._missing) >= WATCHED_MAX:
            return 0
        self._number = self._number % 0xFFFFFFFF + 1
        (self._prompt if prompt else self._patient)[self._number] = Sent(parcel, now, self._patience_ns)
        return self._number

    def noticed(self, notice: Notice, now: Nanos) -> Told:
        highest, earlier = notice.highest, notice.earlier
        came = lost = 0
        sent_ns = self._forget(highest)
        late = sent_ns is None
        if sent_ns is None:
            sent_ns = self._overdue.pop(highest, None)
        came = 0 if sent_ns is None else 1
        for queue in (self._prompt, self._patient, self._missing):
            for number in [one for one in queue if one < highest]:
                if earlier >> (highest - number - 1) & 1:
                    del queue[number]
                    came += 1
                elif queue is self._patient:
                    self._missing[number] = queue.pop(number)
        for number in [one for one in self._overdue if one < highest]:
            if earlier >> (highest - number - 1) & 1:
                came += 1
            elif highest - number <= REORDERED_MAX:
                continue
            else:
                lost += 1
            del self._overdue[number]
        rtt_ns = None if sent_ns is None else max(0, now - sent_ns - notice.delay_us * US)
        return Told(came, lost, rtt_ns, late)

    def next_overdue(self, patience_ns: Nanos) -> Nanos:
        self._patience_ns = patience_ns
        heads = ((next(iter(queue.values())), put_off_ns) for queue, put_off_ns in self._queues() if queue)
        return min((self._due(head, put_off_ns) for head, put_off_ns in heads), default=NEVER)

    def take_overdue(self, patience_ns: Nanos, now: Nanos) -> list[T]:
        self._patience_ns = patience_ns
        overdue: list[T] = []
        for queue, put_off_ns in self._queues():
            while queue:
                number, head = next(iter(queue.items()))
                if now < self._due(head, put_off_ns):
                    break
                del queue[number]
                self._overdue[number] = head.sent_ns
                overdue.append(head.parcel)
        while len(self._overdue) > WATCHED_MAX:
            del self._overdue[next(iter(self._overdue))]
        return overdue

    def take_all(self) -> list[T]:
        """All without notice, when there is no more reason to expect one."""
        taken = []
        for queue in (self._prompt, self._patient, self._missing):
            taken += [sent.parcel for sent in queue.values()]
            queue.clear()
        return taken

    def _queues(self) -> Iterator[tuple[dict[int, Sent[T]], Nanos]]:
        """Each with how long its notices may be put off."""
        yield self._prompt, 0
        yield self._missing, 0
        yield self._patient, NOTICE_DELAY

    def _due(self, sent: Sent[T], put_off_ns: Nanos) -> Nanos:
        return sent.sent_ns + max(sent.patience_ns, self._patience_ns) + put_off_ns

    def _forget(self, number: int) -> Nanos | None:
        for queue in (self._prompt, self._patient, self._missing):
            entry = queue.pop(number, None)
            if entry is not None:
                return entry.sent_ns
        return None


@dataclass(slots=True)
class Noticing:
    """The receiver's side."""

    due_ns: Nanos = NEVER
    _highest: int = -1
    _earlier: int = 0
    _came_ns: Nanos = field(default=0)

    def came(self, number: int, prompt: bool, now: Nanos) -> None:
        gap = self._highest >= 0 and number > self._highest + 1
        if number > self._highest:
            shift = number - self._highest
            if self._highest < 0 or shift > NOTICE_WINDOW:
                self._earlier = 0
            else:
                bits = (self._earlier << shift) | (1 << (shift - 1))
                self._earlier = bits & ((1 << NOTICE_WINDOW) - 1)
            self._highest, self._came_ns = number, now
        else:
            behind = self._highest - number
            if 0 < behind <= NOTICE_WINDOW:
                self._earlier |= 1 << (behind - 1)
        self.due_ns = min(self.due_ns, now if gap or prompt else now + NOTICE_DELAY)

    def take(self, now: Nanos) -> Notice:
        """The notice that is due."""
        self.due_ns = NEVER
        return Notice(self._highest, (now - self._came_ns) // US, self._earlier)
