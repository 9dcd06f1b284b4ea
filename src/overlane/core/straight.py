"""Straight: parcels that come and leave alone, without being taken apart, queued and put together again.

Most of the time a link has nothing to send and takes what comes at once. A best-effort parcel without a deadline then
has nothing to be decided about: it waits alone, as the frame that it is, and leaves with its age put right. This is
so for a parcel that came alone and goes on over one link, and for one that was just made here.

The frame gets a place in the queue as soon as another parcel comes, and is treated like every other from then on.
One that ends here with a single message, and is just the next of its flow, is handed on at once.

Whatever is not as plain as this takes the way of all parcels from the beginning; so does what must be repaired or
watched, what is delivered here and passes too, is sent over several links or with the description of its route.
"""

import struct

from overlane.core.forwarding import Forwarding
from overlane.core.neighbour import Neighbour
from overlane.core.parcel import LONE, Message, encoded, unpack_lone
from overlane.core.signalling import Entry, RouteTable
from overlane.core.sink import Sink
from overlane.core.units import US, Nanos
from overlane.core.wire import AGE_US_MAX, PARCEL_BYTES, FrameType, unpack_parcel

_PARCEL = int(FrameType.PARCEL)
_LONE_FRAME = struct.Struct("!IBB6sHIIH" + "BHIHHB")
"""The header of a plain parcel (wire.py), and what a message alone has ahead of its topic (parcel.py)."""
_LONE_LENGTH = _LONE_FRAME.size - 4


def lone_frame(key: bytes, number: int, flow: int, sequence: int, after: int, message: Message) -> bytes:
    """A plain parcel of one message as it is made; empty if the message is not in the usual place of its flow."""
    back = sequence - after if after else 0
    if flow > 0xFFFF or not 0 <= back <= 0xFFFF or (after and not back):
        return b""
    topic, flags, body = message
    utf8 = encoded(topic)
    length = _LONE_LENGTH + len(utf8) + len(body)
    high, low = number >> 32, number & 0xFFFFFFFF
    head = _LONE_FRAME.pack(length, _PARCEL, 0, key, high, low, 0, 1, LONE, flow, sequence, back, len(utf8), flags)
    return b"".join((head, utf8, body))


class Straight:
    def __init__(
        self,
        me: int,
        names: dict[int, str],
        neighbours: dict[str, Neighbour],
        routes: RouteTable,
        forwarding: Forwarding,
        sink: Sink,
    ) -> None:
        self._me = me
        self._names = names
        self._sink = sink
        self._neighbours = neighbours
        self._keyed = routes.keyed
        self._duplicates = forwarding.duplicates
        self._counters = forwarding.counters

    def onward(self, entry: Entry) -> Neighbour | None:
        """The only neighbour that parcels of this version of a route go to, if it can be sent one at once."""
        if not entry.onward or entry.unconfirmed:
            return None
        neighbour = self._neighbours.get(entry.onward)
        return neighbour if neighbour is not None and neighbour.is_free else None

    def passes(self, source: Neighbour, data: bytes, now: Nanos) -> bool:
        """Bytes from a neighbour; False, and nothing done, if they are not just one parcel that goes a straight way."""
        if len(data) < PARCEL_BYTES or not source.greeted or source.leftover:
            return False
        length, kind, flags, key, high, low, age_us, messages = unpack_parcel(data)
        if kind != _PARCEL or length != len(data) - 4 or flags or not messages:
            return False
        entry = self._keyed.get(key)
        if entry is None:
            return False
        _, origin, life, _, deadline_us = entry.name
        if deadline_us or origin == self._me:
            return False
        number = high << 32 | low
        age_us += source.health.latency_ns // US
        if age_us > AGE_US_MAX:
            age_us = AGE_US_MAX
        if not entry.next_hops:
            return messages == 1 and entry.deliver and self._ends(data, origin, life, number, age_us, now)
        onward = self.onward(entry)
        if onward is None or onward is source:
            return False
        if self._duplicates.is_new(origin, life, number):
            onward.park(data, entry.name, age_us, messages, now)
        else:
            self._counters.duplicates_dropped += 1
        return True

    def _ends(self, data: bytes, origin: int, life: int, number: int, age_us: int, now: Nanos) -> bool:
        lone = unpack_lone(data, PARCEL_BYTES, life)
        if lone is None:
            return False
        name = (origin, *lone[0])
        flow = self._sink.straight_flow(name, lone)
        if flow is None:
            return False
        if self._duplicates.is_new(origin, life, number):
            self._sink.arrive_straight(flow, name, lone, age_us * US, self._names.get(origin, "?"), now)
        else:
            self._counters.duplicates_dropped += 1
        return True
