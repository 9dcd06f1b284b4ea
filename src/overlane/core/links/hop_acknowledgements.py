"""Hop acknowledgements: has a parcel arrived at the next broker?

Parcels that request it are numbered per hop. The receiver acknowledges by number: at once if the sender asks for that
or if a number is missing, otherwise after `HOP_ACK_DELAY` for several parcels together. From an acknowledgement the
sender learns what arrived, the round-trip time, and what is missing. A parcel that stays unacknowledged for too long is
overdue and is handed back for repair.

Numbers of overdue parcels are remembered: a later acknowledgement still tells whether the parcel was lost or only late.

When a link becomes faster, later parcels overtake earlier ones. Each parcel keeps the timeout that was valid when it
was sent; otherwise everything in flight on the slower link would count as lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from overlane.core.units import MS, NEVER, US, Nanos
from overlane.core.wire.frame_codec import HopAck

HOP_ACK_DELAY: Nanos = 35 * MS
"""Less than the 40 ms for which TCP puts off its own acknowledgement: that then goes along."""
HOP_ACK_WINDOW = 64
REORDERED_MAX = 2
"""So many later parcels may come before one without its being taken for lost."""
UNACKNOWLEDGED_MAX = 4096

T = TypeVar("T")


class HopAckReport(NamedTuple):
    """What the sender learns from an acknowledgement."""

    came: int
    lost: int
    rtt_ns: Nanos | None
    late: bool
    """The round trip is of a parcel that had been given up."""


class SentParcel(NamedTuple, Generic[T]):
    parcel: T
    sent_ns: Nanos
    patience_ns: Nanos
    """By what was known of the link then."""


class UnacknowledgedParcels(Generic[T]):
    """The sender's side. Three queues, each in the order of sending, since each has a patience of its own."""

    def __init__(self) -> None:
        self._number = 0
        self._patience_ns: Nanos = 0
        """When last asked for what is overdue."""
        self._prompt: dict[int, SentParcel[T]] = {}
        self._patient: dict[int, SentParcel[T]] = {}
        self._missing: dict[int, SentParcel[T]] = {}
        """Later ones have arrived: their own acknowledgement is not delayed on purpose."""
        self._overdue: dict[int, Nanos] = {}
        self.twice_until = 0
        """Numbers up to this one were sent over two paths: their round trip is that of neither."""

    def add(self, parcel: T, prompt: bool, now: Nanos) -> int:
        """Watch a parcel that is being sent; its number, 0 if there are too many to watch."""
        if len(self._prompt) + len(self._patient) + len(self._missing) >= UNACKNOWLEDGED_MAX:
            return 0
        self._number = self._number % 0xFFFFFFFF + 1
        (self._prompt if prompt else self._patient)[self._number] = SentParcel(parcel, now, self._patience_ns)
        return self._number

    def handle_hop_ack(self, hop_ack: HopAck, now: Nanos) -> HopAckReport:
        highest, earlier = hop_ack.highest, hop_ack.earlier
        came = lost = 0
        sent_ns = self._forget(highest)
        late = sent_ns is None
        if sent_ns is None:
            sent_ns = self._overdue.pop(highest, None)
        came = 0 if sent_ns is None else 1
        for queue in (self._prompt, self._patient, self._missing):
            if not queue:
                continue
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
        rtt_ns = (
            None if sent_ns is None or highest <= self.twice_until else max(0, now - sent_ns - hop_ack.delay_us * US)
        )
        return HopAckReport(came, lost, rtt_ns, late)

    def next_overdue(self, patience_ns: Nanos) -> Nanos:
        self._patience_ns = patience_ns
        if not (self._prompt or self._patient or self._missing):
            return NEVER
        heads = ((next(iter(queue.values())), put_off_ns) for queue, put_off_ns in self._queues() if queue)
        return min((self._due(head, put_off_ns) for head, put_off_ns in heads), default=NEVER)

    def take_overdue(self, patience_ns: Nanos, now: Nanos) -> list[T]:
        self._patience_ns = patience_ns
        overdue: list[T] = []
        if not (self._prompt or self._patient or self._missing):
            return overdue
        for queue, put_off_ns in self._queues():
            while queue:
                number, head = next(iter(queue.items()))
                if now < self._due(head, put_off_ns):
                    break
                del queue[number]
                self._overdue[number] = head.sent_ns
                overdue.append(head.parcel)
        while len(self._overdue) > UNACKNOWLEDGED_MAX:
            del self._overdue[next(iter(self._overdue))]
        return overdue

    def sent_again(self, patience_ns: Nanos, now: Nanos) -> None:
        """Everything was sent again over another path just now, which has this patience."""
        self.twice_until = self._number
        self._overdue.clear()
        for queue in (self._prompt, self._patient, self._missing):
            for number, sent in queue.items():
                queue[number] = sent._replace(sent_ns=now, patience_ns=max(sent.patience_ns, patience_ns))

    def take_all(self) -> list[T]:
        """All unacknowledged parcels, when no acknowledgement is expected any more."""
        taken = []
        for queue in (self._prompt, self._patient, self._missing):
            taken += [sent.parcel for sent in queue.values()]
            queue.clear()
        return taken

    def _queues(self) -> Iterator[tuple[dict[int, SentParcel[T]], Nanos]]:
        """Each with how long its acknowledgements may be delayed."""
        yield self._prompt, 0
        yield self._missing, 0
        yield self._patient, HOP_ACK_DELAY

    def _due(self, sent: SentParcel[T], put_off_ns: Nanos) -> Nanos:
        return sent.sent_ns + max(sent.patience_ns, self._patience_ns) + put_off_ns

    def _forget(self, number: int) -> Nanos | None:
        for queue in (self._prompt, self._patient, self._missing):
            entry = queue.pop(number, None)
            if entry is not None:
                return entry.sent_ns
        return None


@dataclass(slots=True)
class HopAckGenerator:
    """The receiver's side."""

    due_ns: Nanos = NEVER
    _highest: int = -1
    _earlier: int = 0
    _came_ns: Nanos = field(default=0)

    def came(self, number: int, prompt: bool, now: Nanos, waited_ns: Nanos = 0) -> None:
        gap = self._highest >= 0 and number > self._highest + 1
        if number > self._highest:
            shift = number - self._highest
            if self._highest < 0 or shift > HOP_ACK_WINDOW:
                self._earlier = 0
            else:
                bits = (self._earlier << shift) | (1 << (shift - 1))
                self._earlier = bits & ((1 << HOP_ACK_WINDOW) - 1)
            self._highest, self._came_ns = number, now - waited_ns
        else:
            behind = self._highest - number
            if 0 < behind <= HOP_ACK_WINDOW:
                self._earlier |= 1 << (behind - 1)
        self.due_ns = min(self.due_ns, now if gap or prompt else now + HOP_ACK_DELAY)

    def take(self, now: Nanos) -> HopAck:
        """The acknowledgement that is due."""
        self.due_ns = NEVER
        return HopAck(self._highest, (now - self._came_ns) // US, self._earlier)
