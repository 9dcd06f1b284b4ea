"""Message losses: messages that the overlay lost at this broker, by cause.

Messages are counted as publishers know them, each where it is lost: a message to two brokers over two links that is
lost on both counts twice. Reliable parcels are not counted when a hop drops them: their source sends them again, until
their lifespan ends or their destination leaves. Nor are second copies of what was sent before.

One entry of a parcel may stand for many messages; `count`, of a protocol, tells how many by its flags and body.
Brokers in between do not know the content of a parcel, and decode it only to count one that is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass

from overlane.core.links.neighbour import OutgoingParcel
from overlane.core.wire.frame_codec import Header, ParcelFlag
from overlane.core.wire.parcel import BadContent, Message, unpack, unpack_messages

MessageCount = Callable[[int, bytes], int]

_RELIABLE = int(ParcelFlag.RELIABLE)
_COPY = int(ParcelFlag.CONFIRM | ParcelFlag.DIRECT)


def each_is_one(_flags: int, _body: bytes) -> int:
    return 1


@dataclass(slots=True)
class MessageLosses:
    queue_full: int = 0
    """No room: in the queue of a link, or among what waits at its source for that."""
    expired: int = 0
    """Its deadline could not be met any more."""
    unroutable: int = 0
    """No way to its destination was known, or no link of it was up."""
    link_lost: int = 0
    """It waited for a link that was lost."""
    overtaken: int = 0
    """It came after later ones of its flow had been handed on."""
    lifespan_ended: int = 0
    """Reliable, and not acknowledged within its lifespan."""
    destination_left: int = 0
    """Reliable, and not acknowledged by a broker that has left for good."""
    count: MessageCount = each_is_one

    def of(self, messages: list[Message]) -> int:
        return sum([self.count(flags, body) for _, flags, body in messages])

    def of_parcel(self, header: Header, rest: bytes | memoryview) -> int:
        """How many messages are lost with a parcel; none if it is sent again."""
        if header.flags & _RELIABLE:
            return 0
        if header.flags & _COPY == _COPY and not header.version:
            return 0  # another copy takes the route
        if self.count is each_is_one:
            return header.messages
        try:
            return self.of(unpack(bytes(rest), header.incarnation, header.messages)[1])
        except BadContent:
            return header.messages

    def of_waiting(self, out: OutgoingParcel) -> int:
        """The same for one that waited for a link."""
        return 0 if out.is_copy else self.of_parcel(out.header, out.rest)

    def of_content(self, content: bytes, entries: int) -> int:
        """The same for the inside of a parcel without its place in the flow."""
        return entries if self.count is each_is_one else self.of(unpack_messages(content, 0, entries))
