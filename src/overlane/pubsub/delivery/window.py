"""The window: unacknowledged QoS 1 and 2 messages of a session.

Entries wait in the order of arrival, are sent while the client's receive maximum allows, and stay until the client has
acknowledged them: QoS 1 once; QoS 2 twice, and after the first only the end of the exchange remains. After a reconnect
everything sent and not acknowledged is sent again, in the same order.

The tag of an entry follows from its sequence number, so that it is the same after a restart of the broker without
having been stored when it was sent. Which entries were sent is not stored either, only a limit of it
(`Session.headway`): after a restart, entries before that limit are sent as possible duplicates. The queue is limited in
messages and bytes.

An entry that was sent once does not expire any more. A QoS 2 message that is given up is released instead; otherwise
the client would keep its tag forever and treat a later message under it as a duplicate.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import islice, takewhile

from overlane.core.units import NEVER, SECOND, Nanos
from overlane.pubsub.limits import Limits
from overlane.pubsub.message import Message, MessageRecord

TAGS = 65_535
ANSWER_WITHIN: Nanos = 2 * SECOND
"""A client that has not acknowledged anything for so long does not keep up, and is not waited for."""


class DeliveryStage(IntEnum):
    WAITING = 0
    """The client has not got it."""
    SENT = 1
    """The client may have got it, over this connection or an earlier one."""
    RELEASED = 2
    """The client has it and knows that we know."""


_WAITING = DeliveryStage.WAITING
"""A global name: an attribute of an Enum takes longer to find, and every entry needs it."""


class Entry:
    """One message for one client. `group`: the shared subscription it came by, or ""."""

    __slots__ = (
        "group",
        "identifiers",
        "is_plain",
        "message",
        "qos",
        "record",
        "retain",
        "sequence",
        "stage",
        "stored_in",
        "tries",
    )

    def __init__(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        group: str = "",
        sequence: int = 0,
        is_plain: bool = False,
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.group = group
        self.sequence = sequence
        self.stage = _WAITING
        self.tries = 0
        self.is_plain = is_plain
        """Of QoS 1, with a message that has nothing but topic and payload, and not sent before: such are sent together
        (`Consumer.take_run`)."""
        self.record: EntryRecord | None = None
        """The record that it is in, as long as it is stored."""
        self.stored_in = 0
        """The turn in which it was stored."""

    @property
    def is_stored(self) -> bool:
        return self.record is not None

    @property
    def tag(self) -> int:
        return self.sequence % TAGS + 1


class EntryRecord:
    """A record of entries with consecutive sequence numbers, whose messages follow each other in one record.

    `first`: the place of the first message there. `places`: the entries by their place here, None for those that are
    done with. `left`: how many are not."""

    __slots__ = ("first", "is_changed", "key", "left", "messages", "places")

    def __init__(self, key: bytes, first: int, messages: MessageRecord, places: list[Entry | None]) -> None:
        self.key = key
        self.first = first
        self.messages = messages
        self.places = places
        self.left = len(places)
        self.is_changed = False


class Window:
    __slots__ = (
        "_expires_ns",
        "_next_sequence",
        "_waiting",
        "answered_ns",
        "bytes",
        "receive_max",
        "sent",
        "sent_up_to",
    )

    def __init__(self) -> None:
        self._waiting: deque[Entry] | None = None
        """None as long as there is nothing: an empty deque takes 700 bytes, and most clients are owed nothing."""
        self.sent: dict[int, Entry] = {}
        self.bytes = 0
        self.receive_max = 0
        self.answered_ns: Nanos = 0
        """When the client has last answered to what was sent, or did not owe an answer yet."""
        self.sent_up_to = 0
        """The highest sequence number of what was sent, or may have been in an earlier life of the broker."""
        self._next_sequence = 1
        self._expires_ns: Nanos = NEVER
        """Nothing that waits expires before."""

    def __len__(self) -> int:
        return len(self._waiting or ()) + len(self.sent)

    def __iter__(self) -> Iterator[Entry]:
        yield from self.sent.values()
        yield from self._waiting or ()

    @property
    def waiting(self) -> Iterable[Entry]:
        """What was not sent over this connection, in its order."""
        return self._waiting or ()

    @property
    def is_waiting(self) -> bool:
        """Whether there is anything that was not sent over this connection."""
        return bool(self._waiting)

    @property
    def last_sequence(self) -> int:
        """0: none was given yet."""
        return self._next_sequence - 1

    @property
    def has_room(self) -> bool:
        return not self._waiting and len(self.sent) < self.receive_max

    def takes(self, message: Message, limits: Limits, overrun: int = 1) -> bool:
        """Whether there is room for it within so many times the limits."""
        is_countable = len(self) < overrun * limits.queue_messages
        return is_countable and self.bytes + message.size_bytes <= overrun * limits.queue_bytes

    def crowding(self, limits: Limits) -> float:
        """How full it is, from 0 to 1."""
        return min(1.0, max(len(self) / limits.queue_messages, self.bytes / limits.queue_bytes))

    def keeps_answering(self, now: Nanos, unanswerable_until_ns: Nanos) -> bool:
        """Time in which it could not answer does not count. One that takes nothing owes no answer, and does not keep up
        as long as anything waits for it."""
        if not self.sent and (self.receive_max > 0 or not self._waiting):
            return True
        return now - max(self.answered_ns, unanswerable_until_ns) < ANSWER_WITHIN

    def add(self, entry: Entry) -> None:
        entry.sequence = self._next_sequence
        self._next_sequence += 1
        self.bytes += entry.message.size_bytes
        self._expires_ns = min(self._expires_ns, entry.message.expires_ns)
        self._append(entry)

    def takes_run(self, count: int, size_bytes: int, limits: Limits, overrun: int) -> bool:
        """Whether there is room for so many messages of so many bytes, within so many times the limits."""
        is_countable = len(self) + count <= overrun * limits.queue_messages
        return is_countable and self.bytes + size_bytes <= overrun * limits.queue_bytes

    def add_run(self, messages: Sequence[Message], identifiers: tuple[int, ...], size_bytes: int) -> list[Entry]:
        """Add plain messages of QoS 1 that do not expire, of so many bytes together."""
        is_plain = not identifiers
        entries = [
            Entry(message, 1, False, identifiers, "", sequence, is_plain)
            for sequence, message in enumerate(messages, self._next_sequence)
        ]
        self._next_sequence += len(entries)
        self.bytes += size_bytes
        if self._waiting is None:
            self._waiting = deque()
        self._waiting += entries
        return entries

    def _append(self, entry: Entry) -> None:
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(entry)

    def restore(self, entry: Entry) -> None:
        """Entries come back in the order of their sequence numbers."""
        self._next_sequence = max(self._next_sequence, entry.sequence + 1)
        self.bytes += entry.message.size_bytes
        self._expires_ns = min(self._expires_ns, entry.message.expires_ns)
        if entry.stage is DeliveryStage.RELEASED:
            self.sent[entry.tag] = entry
        else:
            self._append(entry)

    def go_on_at(self, sequence: int) -> None:
        """Numbers before this one may have been used in an earlier life of the broker."""
        self._next_sequence = max(self._next_sequence, sequence)

    def recovered(self, headway: int) -> None:
        """All entries are back. Nobody knows what of those up to this sequence number was sent."""
        self.sent_up_to = min(headway, self.last_sequence)
        for entry in self._waiting or ():
            if entry.sequence > headway:
                break
            entry.stage = DeliveryStage.SENT

    def resume(self, sent: list[Entry], waiting: list[Entry], next_sequence: int, sent_up_to: int) -> None:
        """Go on where that of another broker was."""
        self.sent = {entry.tag: entry for entry in sent}
        self._waiting = deque(waiting) or None
        self.bytes = sum(entry.message.size_bytes for entry in self)
        self._next_sequence, self.sent_up_to = next_sequence, sent_up_to
        self._expires_ns = min((entry.message.expires_ns for entry in waiting), default=NEVER)

    def next_to_send(self) -> Entry | None:
        """The first that waits, if the client takes one more now."""
        if not self._waiting or len(self.sent) >= self.receive_max:
            return None
        entry = self._waiting[0]
        return None if entry.tag in self.sent else entry

    def plain_to_send(self) -> list[Entry]:
        """The first that wait, as far as they are plain and the client takes them now."""
        sent = self.sent
        room = self.receive_max - len(sent)
        if not self._waiting or room <= 0:
            return []
        found = list(islice(self._waiting, room))
        tags = [entry.sequence % TAGS + 1 for entry in found if entry.is_plain]
        if len(tags) == len(found) and sent.keys().isdisjoint(tags):
            return found
        return list(takewhile(lambda one: one.is_plain and one.sequence % TAGS + 1 not in sent, found))

    def send_run(self, entries: list[Entry], now: Nanos) -> None:
        """These are the first that wait, plain, and on their way now."""
        sent, waiting = self.sent, self._waiting
        assert waiting
        if not sent:
            self.answered_ns = now
        is_sent = DeliveryStage.SENT
        for entry in entries:
            sent[entry.sequence % TAGS + 1] = entry
            entry.stage = is_sent
            entry.tries = 1
            entry.is_plain = False
        if len(entries) == len(waiting):
            waiting.clear()
        for _ in range(min(len(waiting), len(entries))):
            waiting.popleft()
        self.sent_up_to = max(self.sent_up_to, entries[-1].sequence)
        if not waiting:
            self._waiting = None

    def send(self, entry: Entry, now: Nanos) -> None:
        """It is the first that waits, and on its way now."""
        if not self.sent:
            self.answered_ns = now
        self._take_first()
        self.sent[entry.tag] = entry
        self.sent_up_to = max(self.sent_up_to, entry.sequence)
        entry.stage = DeliveryStage.SENT
        entry.tries += 1
        entry.is_plain = False

    def drop(self, entry: Entry) -> None:
        """It is the first that waits, and will not be sent."""
        self._take_first()
        self.bytes -= entry.message.size_bytes

    def _take_first(self) -> None:
        assert self._waiting
        self._waiting.popleft()
        if not self._waiting:
            self._waiting = None

    def give_up(self, entry: Entry) -> None:
        """It is the first that waits, of QoS 2, and the client may have it: it will be released, and not sent."""
        self._take_first()
        self.sent[entry.tag] = entry
        entry.stage = DeliveryStage.RELEASED

    def release(self, entry: Entry) -> None:
        """The client has it. What is released is released again in the order in which it was (section 4.6)."""
        self.sent[entry.tag] = self.sent.pop(entry.tag)
        entry.stage = DeliveryStage.RELEASED

    def expire(self, now: Nanos) -> list[Entry]:
        """Take those away that have expired and were never sent."""
        if self._expires_ns > now:
            return []
        gone = [
            one for one in self._waiting or () if one.stage is DeliveryStage.WAITING and one.message.expires_ns <= now
        ]
        if gone:
            self.bytes -= sum(one.message.size_bytes for one in gone)
            taken = frozenset(gone)
            self._waiting = deque(one for one in self._waiting or () if one not in taken) or None
        owed = (one.message.expires_ns for one in self._waiting or () if one.stage is DeliveryStage.WAITING)
        self._expires_ns = min(owed, default=NEVER)
        return gone

    def take_out(self, entries: Iterable[Entry]) -> None:
        """These wait, and are for somebody else."""
        taken = frozenset(entries)
        self.bytes -= sum(one.message.size_bytes for one in taken)
        self._waiting = deque(one for one in self._waiting or () if one not in taken) or None

    def put_back(self, entry: Entry, is_counted: bool) -> None:
        """It was sent, and the client does not keep it: it waits again, in its place. `is_counted`: as a try."""
        del self.sent[entry.tag]
        if not is_counted:
            entry.tries -= 1
        if entry.tries <= 0:
            entry.stage = DeliveryStage.WAITING
            self._expires_ns = min(self._expires_ns, entry.message.expires_ns)
        if self._waiting is None:
            self._waiting = deque()
        place = next((at for at, one in enumerate(self._waiting) if one.sequence > entry.sequence), len(self._waiting))
        self._waiting.insert(place, entry)

    def done(self, entry: Entry) -> None:
        """It was sent, and nothing more is owed."""
        del self.sent[entry.tag]
        self.bytes -= entry.message.size_bytes

    def reconnected(self) -> list[Entry]:
        """A new connection: what was sent must be sent again; those released are returned, to be released again."""
        released = [entry for entry in self.sent.values() if entry.stage is DeliveryStage.RELEASED]
        again = [entry for entry in self.sent.values() if entry.stage is not DeliveryStage.RELEASED]
        self.sent = {entry.tag: entry for entry in released}
        if again:
            self._waiting = deque([*again, *(self._waiting or ())])
        return released
