"""Deduplication: QoS 1 messages once, for clients that request it, although QoS 1 only promises at least once.

When a broker fails, two kinds of QoS 1 messages arrive twice: those whose acknowledgement the client has not received
are published again, and those whose acknowledgement the broker has not stored are delivered again. A packet identifier
could distinguish them from new ones, if it were not reused for another message as soon as it is free.

A client that sends `overlane-once: RUN` when it connects, with a unique word for each of its runs, promises to assign
its identifiers in turn during that run. The broker answers with the same, and promises the same for its own
identifiers:

    taken       the last accepted QoS 1 messages, by their identifiers. One that is received again, marked as a
                duplicate, is only acknowledged. This becomes durable together with the records of the message.
    reserved    an upper limit of the sequence numbers delivered to the client. They continue there after a restart;
                otherwise numbers without a waiting message would be reused.

Acknowledgements arrive in the order in which they were sent. So those that a client may have missed are among the
latest, and no more than it may have in flight: others are removed.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from overlane.core.events import Erase, RecordChange, Save
from overlane.core.records import numbers_in

PROPERTY = "overlane-once"
TABLE = "mqtt.once"
RUN_CHARS_MAX = 64
RESERVED_AT_ONCE = 1_000

_encode = msgspec.msgpack.Encoder().encode
_decode_taken = msgspec.msgpack.Decoder(tuple[int, int, str]).decode


def run_of(user_properties: Iterable[tuple[str, str]]) -> str:
    """The user property in CONNECT; "" if the client does not request deduplication."""
    run = next((value for name, value in user_properties if name == PROPERTY), "")
    return run if len(run) <= RUN_CHARS_MAX else ""


class TakenMessages(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of one session, as a value. `taken`: (slot, number, packet identifier), by number."""

    run: Annotated[str, Meta(max_length=RUN_CHARS_MAX)]
    next: Annotated[int, Meta(ge=0, lt=1 << 62)]
    taken: tuple[
        tuple[
            Annotated[int, Meta(ge=0, le=0xFFFF)],
            Annotated[int, Meta(ge=0, lt=1 << 62)],
            Annotated[int, Meta(ge=1, le=0xFFFF)],
        ],
        ...,
    ]
    reserved: Annotated[int, Meta(ge=0, lt=1 << 62)]


class Deduplication:
    """Of one session. `key`: what its records begin with."""

    __slots__ = ("_by_slot", "_key", "_next", "_reserved", "_run", "_slot_of")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._run = ""
        self._next = 0
        self._by_slot: dict[int, tuple[int, int]] = {}
        """Number and packet identifier of what was taken, each in the place of one that is no longer needed."""
        self._slot_of: dict[int, int] = {}
        self._reserved = 0

    @property
    def reserved(self) -> int:
        return self._reserved

    @property
    def is_promised(self) -> bool:
        """Whether the connected client has been promised that each of its messages is accepted once."""
        return bool(self._run)

    def begin(self, run: str, in_flight: int, last_sequence: int) -> list[RecordChange]:
        """A client connects; without a run it promises nothing, and nothing is promised to it. `last_sequence`: the
        last number that was used for a message to it."""
        is_same, self._run = run == self._run, run
        kept = self._next - in_flight if is_same and run else self._next
        effects = [self._forget(slot) for slot, (number, _) in list(self._by_slot.items()) if number < kept]
        return effects + self._reserve_up_to(last_sequence) if run and last_sequence else effects

    def rest(self) -> list[RecordChange]:
        """A client connects while nothing can be written: nothing is promised until the next time."""
        self._run = ""
        return []

    def has(self, packet_id: int) -> bool:
        """Whether a message that comes again under this identifier was taken before."""
        return bool(self._run) and packet_id in self._slot_of

    def take(self, packet_id: int, in_flight: int) -> list[RecordChange]:
        """A message was accepted under this identifier."""
        if not self._run:
            return []
        number, slot = self._next, self._next % in_flight
        self._next += 1
        self._put(slot, number, packet_id)
        return [Save(TABLE, self._key + slot.to_bytes(2), _encode((number, packet_id, self._run)))]

    def reserve(self, sequence: int) -> list[RecordChange]:
        """This number is used for a message to the client."""
        return self._reserve_up_to(sequence) if self._run or self._reserved else []

    def _reserve_up_to(self, sequence: int) -> list[RecordChange]:
        if sequence < self._reserved:
            return []
        self._reserved = sequence + RESERVED_AT_ONCE
        return [Save(TABLE, self._key, self._reserved.to_bytes(8))]

    def erased(self) -> list[RecordChange]:
        """The session ends."""
        gone = [self._forget(slot) for slot in list(self._by_slot)]
        if self._reserved:
            self._reserved = 0
            gone.append(Erase(TABLE, self._key))
        return gone

    def exported(self) -> TakenMessages:
        taken = [(slot, number, packet_id) for slot, (number, packet_id) in self._by_slot.items()]
        taken.sort(key=lambda one: one[1])
        return TakenMessages(self._run, self._next, tuple(taken), self._reserved)

    def resume(self, exported: TakenMessages) -> None:
        """Go on where another broker was."""
        self._run, self._next, self._reserved = exported.run, exported.next, exported.reserved
        for slot, number, packet_id in exported.taken:
            self._put(slot, number, packet_id)

    def saved(self) -> list[RecordChange]:
        """Everything."""
        saved: list[RecordChange] = [
            Save(TABLE, self._key + slot.to_bytes(2), _encode((number, packet_id, self._run)))
            for slot, (number, packet_id) in self._by_slot.items()
        ]
        if self._reserved:
            saved.append(Save(TABLE, self._key, self._reserved.to_bytes(8)))
        return saved

    def restore(self, rest: bytes, value: bytes) -> None:
        """A record of an earlier life of the broker; `rest`: its key without what all begin with."""
        if not rest:
            (self._reserved,) = numbers_in(value, 1)
            return
        slot, number, packet_id, self._run = read_taken(rest, value)
        self._next = max(self._next, number + 1)
        self._put(slot, number, packet_id)

    def _put(self, slot: int, number: int, packet_id: int) -> None:
        self._drop(slot)
        self._by_slot[slot] = number, packet_id
        self._slot_of[packet_id] = slot

    def _forget(self, slot: int) -> RecordChange:
        self._drop(slot)
        return Erase(TABLE, self._key + slot.to_bytes(2))

    def _drop(self, slot: int) -> None:
        _, packet_id = self._by_slot.pop(slot, (0, 0))
        if self._slot_of.get(packet_id) == slot:
            del self._slot_of[packet_id]


def read_taken(rest: bytes, value: bytes) -> tuple[int, int, int, str]:
    """Slot, number, packet identifier and run of a message that was taken."""
    if len(rest) != 2:
        raise ValueError(f"a slot of {len(rest)} bytes")
    return int.from_bytes(rest), *_decode_taken(value)


def read(rest: bytes, value: bytes) -> object:
    """A record, by its key without what all records of a session begin with."""
    return read_taken(rest, value) if rest else numbers_in(value, 1)
