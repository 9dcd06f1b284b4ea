"""Queue records: the part of the sessions' queues that survives a restart.

Messages that arrived together for the same receivers are one record (`pubsub.message`), shared by all queues that
contain any of them. The entries of one queue for these messages are another record, under the client and the first of
their sequence numbers: the messages, and for each whether it is waiting, sent, released or done. So a run of messages
costs two records, not two for each; a single message is a run of one.

A record of entries is rewritten, once per turn, when some of its entries have changed or are done, and erased with the
last of them. The record of messages is erased with the last record of entries that needs any of them.

Nothing here decides what is durable; it only determines the records, when the turn ends (`flush`).
"""

from collections.abc import Iterable, Sequence

import msgspec

from overlane.core.events import Erase, RecordChange, Save
from overlane.core.records import Owner, OwnerKind, RecordKind
from overlane.pubsub.delivery.window import DeliveryStage, Entry, EntryRecord
from overlane.pubsub.message import TABLE as MESSAGES
from overlane.pubsub.message import Message, MessageRecord, encode_run, key_of

QUEUES = "mqtt.queue@2"

DONE = 0xFF
"""In the place of a stage: the entry is done with."""

_encode = msgspec.msgpack.Encoder().encode
_Stored = tuple[int, int, int, bool, tuple[int, ...], str, bytes, tuple[int, ...]]
"""Number of the record of messages, place of the first there, QoS, retain, identifiers, group, stages, tries."""
_decode = msgspec.msgpack.Decoder(_Stored).decode
_decode_first = msgspec.msgpack.Decoder(tuple[int, int, bool, tuple[int, ...], str, int, int]).decode


class QueueRecords:
    def __init__(self) -> None:
        self.has_changes = False
        """Whether there is anything to be written or erased at the end of the turn."""
        self._unwritten: list[RecordChange] = []
        self._changed: list[EntryRecord] = []
        """Those to be written anew at the end of the turn."""
        self._next_number = 1
        self._recovered: dict[int, tuple[MessageRecord, list[Message]]] = {}

    def put(self, client_id: str, entry: Entry, turn: int) -> None:
        """Keep it, as of this turn."""
        self.put_run(client_id, [entry], [entry.message], turn)

    def put_run(self, client_id: str, entries: list[Entry], messages: Sequence[Message], turn: int) -> None:
        """Keep entries with consecutive sequence numbers that wait, as of this turn, and are alike but for their
        messages. These have come together: either all of them are in one record already, one behind the other, or none
        is in any."""
        first = entries[0]
        stored = first.message.record
        if stored is None or not stored.holders:
            stored = self._put_messages(messages)
        stored.holders += 1
        record = EntryRecord(_key(client_id, first.sequence), first.message.place, stored, [*entries])
        for entry in entries:
            entry.record = record
            entry.stored_in = turn
        count = len(entries)
        stages = bytes(count) if count > 1 else bytes((first.stage,))
        tries = [0] * count if count > 1 else [first.tries]
        alike = first.qos, first.retain, first.identifiers, first.group
        self._unwritten.append(Save(QUEUES, record.key, _encode((stored.number, record.first, *alike, stages, tries))))
        self.has_changes = True

    def _put_messages(self, messages: Sequence[Message]) -> MessageRecord:
        stored = MessageRecord(self._next_number)
        self._next_number += 1
        for place, message in enumerate(messages):
            message.record = stored
            message.place = place
        self._unwritten.append(Save(MESSAGES, key_of(stored.number), encode_run(messages)))
        return stored

    def changed(self, entry: Entry) -> None:
        """It was released, or sent without being acknowledged before the connection ended."""
        if entry.record is not None:
            self._change(entry.record)

    def _change(self, record: EntryRecord) -> None:
        if not record.is_changed:
            record.is_changed = True
            self._changed.append(record)
            self.has_changes = True

    def take(self, entry: Entry) -> None:
        """It is done with."""
        record = entry.record
        if record is not None:
            entry.record = None
            self._take_of(record, (entry,))

    def take_run(self, entries: Iterable[Entry]) -> None:
        """As `take`, of each in turn. Those of one record mostly come one behind the other, and all of them."""
        record: EntryRecord | None = None
        done: list[Entry] = []
        for entry in entries:
            if entry.record is not record:
                if record is not None:
                    self._take_of(record, done)
                record, done = entry.record, []
            entry.record = None
            done.append(entry)
        if record is not None:
            self._take_of(record, done)

    def _take_of(self, record: EntryRecord, done: Sequence[Entry]) -> None:
        """These entries of a record are done with."""
        record.left -= len(done)
        if record.left:
            for entry in done:
                record.places[entry.message.place - record.first] = None
            self._change(record)
            return
        self._unwritten.append(Erase(QUEUES, record.key))
        self.has_changes = True
        record.messages.holders -= 1
        if not record.messages.holders:
            self._unwritten.append(Erase(MESSAGES, key_of(record.messages.number)))

    def flush(self) -> list[RecordChange]:
        """The turn ends: what is to be written and erased."""
        changes, self._unwritten = self._unwritten, []
        changed, self._changed = self._changed, []
        self.has_changes = False
        for record in changed:
            record.is_changed = False
            if record.left:
                some = next(entry for entry in record.places if entry is not None)
                changes.append(Save(QUEUES, record.key, _stored(record, some)))
        return changes

    # Recovery

    def restore_messages(self, key: bytes, messages: list[Message]) -> None:
        stored = MessageRecord(int.from_bytes(key))
        for place, message in enumerate(messages):
            message.record, message.place = stored, place
        self._next_number = max(self._next_number, stored.number + 1)
        self._recovered[stored.number] = stored, messages

    def restore_entries(self, key: bytes, value: bytes) -> tuple[str, list[Entry]]:
        """The client and the entries; none if their messages are no more."""
        client_id, sequence = _read_key(key)
        number, first, qos, retain, identifiers, group, stages, tries = _decode(value)
        stored, messages = self._recovered.get(number, (None, []))
        places: list[Entry | None] = []
        for place, stage in enumerate(stages):
            entry = None
            if stage != DONE and first + place < len(messages):
                entry = Entry(messages[first + place], qos, retain, identifiers, group)
                entry.sequence, entry.stage, entry.tries = sequence + place, DeliveryStage(stage), tries[place]
            places.append(entry)
        entries = [entry for entry in places if entry is not None]
        if stored is None or not entries:
            self._erase(QUEUES, key)
            return client_id, []
        stored.holders += 1
        record = EntryRecord(key, first, stored, places)
        record.left = len(entries)
        for entry in entries:
            entry.record = record
        return client_id, entries

    def recovered(self) -> None:
        """All records have been read: messages that no queue holds are left over from a crash."""
        for stored, _ in self._recovered.values():
            if not stored.holders:
                self._erase(MESSAGES, key_of(stored.number))
        self._recovered.clear()

    def _erase(self, table: str, key: bytes) -> None:
        self._unwritten.append(Erase(table, key))
        self.has_changes = True


def _key(client_id: str, sequence: int) -> bytes:
    return client_id.encode() + b"\0" + sequence.to_bytes(8)


def _read_key(key: bytes) -> tuple[str, int]:
    """Client and sequence number."""
    if len(key) < 9 or key[-9]:
        raise ValueError("a key without a client and a sequence number")
    return key[:-9].decode(), int.from_bytes(key[-8:])


def _read(key: bytes, value: bytes) -> object:
    name, stored = _read_key(key), _decode(value)
    stages, tries = stored[6:]
    if len(stages) != len(tries) or not stages:
        raise ValueError(f"{len(stages)} stages, and tries of {len(tries)} entries")
    return name, stored, [DeliveryStage(stage) for stage in stages if stage != DONE]


def _upgrade_1(value: bytes) -> bytes:
    """In version 1 every entry was a record of its own."""
    number, qos, retain, identifiers, group, stage, tries = _decode_first(value)
    return _encode((number, 0, qos, retain, identifiers, group, bytes((stage,)), (tries,)))


QUEUE_KIND = RecordKind(
    QUEUES,
    lambda key: Owner(OwnerKind.SESSION, _read_key(key)[0]),
    _read,
    needs=lambda _, value: ((MESSAGES, key_of(_decode(value)[0])),),
    upgrades=(_upgrade_1,),
)


def _stored(record: EntryRecord, some: Entry) -> bytes:
    """`some`: one of the entries, all of which are alike but for what is listed."""
    places = record.places
    stages = bytes([DONE if entry is None else entry.stage for entry in places])
    tries = [0 if entry is None else entry.tries for entry in places]
    value = record.messages.number, record.first, some.qos, some.retain, some.identifiers, some.group, stages, tries
    return _encode(value)
