"""Queue records: what of the sessions' queues is kept through a restart.

Each entry of a durable queue is a record of its own under (client, sequence); the message it waits with is a record
under the message's number, shared by all queues that hold it. Nothing here decides what is durable; it says what that
means for the store.
"""

import msgspec

from overlane.core.events import Effect, Erase, Save
from overlane.core.records import Kind, Owner, OwnerKind
from overlane.pubsub.delivery.window import Entry, Stage
from overlane.pubsub.message import TABLE as MESSAGES
from overlane.pubsub.message import Message, key_of

QUEUES = "mqtt.queue"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, int, bool, tuple[int, ...], str, int, int]).decode


class QueueRecords:
    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        self._next_number = 1
        self._recovered: dict[int, Message] = {}

    def put(self, client_id: str, entry: Entry, turn: int) -> None:
        """Keep it, as of this turn."""
        message = entry.message
        if not message.holders:
            message.number = self._next_number
            self._next_number += 1
            self._effects.append(Save(MESSAGES, key_of(message.number), message.stored()))
        message.holders += 1
        entry.is_stored = True
        entry.stored_in = turn
        self._effects.append(Save(QUEUES, _key(client_id, entry.sequence), _stored(entry)))

    def changed(self, client_id: str, entry: Entry) -> None:
        """It was released, or sent without being acknowledged before the connection ended."""
        if entry.is_stored:
            self._effects.append(Save(QUEUES, _key(client_id, entry.sequence), _stored(entry)))

    def take(self, client_id: str, entry: Entry) -> None:
        if not entry.is_stored:
            return
        entry.is_stored = False
        message = entry.message
        self._effects.append(Erase(QUEUES, _key(client_id, entry.sequence)))
        message.holders -= 1
        if not message.holders:
            self._effects.append(Erase(MESSAGES, key_of(message.number)))
            message.number = 0

    # Recovery

    def restore_message(self, key: bytes, message: Message) -> None:
        message.number = int.from_bytes(key)
        self._next_number = max(self._next_number, message.number + 1)
        self._recovered[message.number] = message

    def restore_entry(self, key: bytes, value: bytes) -> tuple[str, Entry] | None:
        """The client and the entry; None if its message is no more."""
        client_id, sequence = _read_key(key)
        number, qos, retain, identifiers, group, stage, tries = _decode(value)
        message = self._recovered.get(number)
        if message is None:
            self._effects.append(Erase(QUEUES, key))
            return None
        message.holders += 1
        entry = Entry(message, qos, retain, identifiers, group)
        entry.sequence, entry.stage, entry.tries, entry.is_stored = sequence, Stage(stage), tries, True
        return client_id, entry

    def recovered(self) -> None:
        """All records have been read: messages that no queue holds are left over from a crash."""
        for message in self._recovered.values():
            if not message.holders:
                self._effects.append(Erase(MESSAGES, key_of(message.number)))
        self._recovered.clear()


def _key(client_id: str, sequence: int) -> bytes:
    return client_id.encode() + b"\0" + sequence.to_bytes(8)


def _read_key(key: bytes) -> tuple[str, int]:
    """Client and sequence number."""
    if len(key) < 9 or key[-9]:
        raise ValueError("a key without a client and a sequence number")
    return key[:-9].decode(), int.from_bytes(key[-8:])


def _read(key: bytes, value: bytes) -> object:
    name, stored = _read_key(key), _decode(value)
    return name, stored, Stage(stored[5])


QUEUE_KIND = Kind(
    QUEUES,
    lambda key: Owner(OwnerKind.SESSION, _read_key(key)[0]),
    _read,
    needs=lambda _, value: ((MESSAGES, key_of(_decode(value)[0])),),
)


def _stored(entry: Entry) -> bytes:
    value = entry.message.number, entry.qos, entry.retain, entry.identifiers, entry.group, int(entry.stage), entry.tries
    return _encode(value)
