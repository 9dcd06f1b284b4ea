"""Cut-through: a single parcel is forwarded without being decoded, queued and encoded again.

Most of the time a link is idle and takes what comes at once. A best-effort parcel without a deadline then needs no
decision: the received frame is parked at the next link and leaves with its age updated. This applies to a parcel that
was received alone and continues over one link, and to a parcel that was just made here.

When another parcel comes first, the parked frame is put into the queue and treated like every other. A parcel with a
single message that ends here, and is the next of its flow, is delivered at once.

All other parcels take the normal path from the start: those that are repaired or acknowledged per hop, that are both
delivered here and forwarded, that go over several links, or that carry the description of their route.
"""

import struct

from overlane.core.flows.sink import Sink
from overlane.core.links.neighbour import Neighbour
from overlane.core.routing.forwarding.forwarding import Forwarding
from overlane.core.routing.signalling.route_establishment import RouteEntry, RouteTable
from overlane.core.units import US, Nanos
from overlane.core.wire.frame_codec import AGE_US_MAX, PARCEL_BYTES, FrameType, unpack_parcel
from overlane.core.wire.parcel import SINGLE, SINGLE_TOPIC_CHARS_MAX, Message, encoded, unpack_single

_PARCEL = int(FrameType.PARCEL)
_TWO_US = 2 * US
_SINGLE_FRAME = struct.Struct("!IBB6sHIIH" + "BHIHHB")
"""The header of a plain parcel (frame_codec.py), and what a message alone has ahead of its topic (parcel.py)."""
_SINGLE_LENGTH = _SINGLE_FRAME.size - 4


def single_message_frame(key: bytes, number: int, flow: int, sequence: int, after: int, message: Message) -> bytes:
    """A plain parcel of one message as it is made; empty if the message is not in the usual place of its flow."""
    back = sequence - after if after else 0
    if flow > 0xFFFF or not 0 <= back <= 0xFFFF or (after and not back):
        return b""
    topic, flags, body = message
    utf8 = encoded(topic) if len(topic) <= SINGLE_TOPIC_CHARS_MAX else topic.encode()
    length = _SINGLE_LENGTH + len(utf8) + len(body)
    high, low = number >> 32, number & 0xFFFFFFFF
    head = _SINGLE_FRAME.pack(length, _PARCEL, 0, key, high, low, 0, 1, SINGLE, flow, sequence, back, len(utf8), flags)
    return b"".join((head, utf8, body))


class CutThrough:
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

    def free_next_hop(self, entry: RouteEntry) -> Neighbour | None:
        """The only neighbour that parcels of this version of a route go to, if it can be sent one at once."""
        if not entry.only_next_hop or entry.unconfirmed:
            return None
        neighbour = self._neighbours.get(entry.only_next_hop)
        if neighbour is None or neighbour.parked is not None or not neighbour.connected:
            return None
        return neighbour if neighbour.queue.is_passable else None

    def try_forward(self, source: Neighbour, data: bytes, now: Nanos) -> bool:
        """Bytes from a neighbour; False, and nothing done, if they are not a single parcel that can be cut through."""
        if len(data) < PARCEL_BYTES or not source.greeted or source.leftover:
            return False
        length, kind, flags, key, high, low, age_us, messages = unpack_parcel(data)
        if kind != _PARCEL or length != len(data) - 4 or flags or not messages:
            return False
        entry = self._keyed.get(key)
        if entry is None:
            return False
        _, origin, incarnation, _, deadline_us = entry.name
        if deadline_us or origin == self._me:
            return False
        number = high << 32 | low
        age_us += source.health.rtt_ns // _TWO_US  # the latency of a link is half its round trip
        if age_us > AGE_US_MAX:
            age_us = AGE_US_MAX
        if not entry.next_hops:
            return messages == 1 and entry.deliver and self._try_deliver(data, origin, incarnation, number, age_us, now)
        onward = self.free_next_hop(entry)
        if onward is None or onward is source:
            return False
        if self._duplicates.record(origin, incarnation, number):
            onward.park(data, entry.name, age_us, messages, now)
        else:
            self._counters.duplicates_dropped += 1
        return True

    def _try_deliver(self, data: bytes, origin: int, incarnation: int, number: int, age_us: int, now: Nanos) -> bool:
        single = unpack_single(data, PARCEL_BYTES, incarnation)
        if single is None:
            return False
        name = (origin, *single[0])
        flow = self._sink.cut_through_flow(name, single)
        if flow is None:
            return False
        if self._duplicates.record(origin, incarnation, number):
            self._sink.arrive_cut_through(flow, name, single, age_us * US, self._names.get(origin, "?"), now)
        else:
            self._counters.duplicates_dropped += 1
        return True
