"""Reception: frames that neighbours send, and which part of the broker gets what.

Parcels go on their way and to the sink; notices and pongs tell of the link they came over; control messages go to
gossip, signalling and source; receipts for others are passed on. Whatever is wrong with the bytes of a neighbour closes
its link and changes nothing else.
"""

from typing import assert_never

import msgspec

from overlane.core import wire
from overlane.core.events import Lane, RouteEstablished
from overlane.core.forwarding import Forwarding
from overlane.core.gossip import Gossip, News
from overlane.core.herald import Herald
from overlane.core.links import Links
from overlane.core.messages import (
    Advert,
    Birth,
    Establish,
    Established,
    Farewell,
    Interest,
    InterestWanted,
    Message,
    Proven,
    Receipt,
    Summary,
    Teardown,
    decode,
)
from overlane.core.neighbour import Neighbour
from overlane.core.parcel import BadContent
from overlane.core.signalling import Entry, RouteTable
from overlane.core.sink import Sink
from overlane.core.source import Source
from overlane.core.units import US, Nanos
from overlane.core.wire import NO_ROUTE, FrameType, Header, ParcelFlag
from overlane.errors import ProtocolViolation

_PARCEL = int(FrameType.PARCEL)
_NOTICE = int(FrameType.NOTICE)
_WATCHED = int(ParcelFlag.WATCHED)
_DIRECT = int(ParcelFlag.DIRECT)


class _Goodbye(ProtocolViolation):
    """No violation, but it ends a connection in the same way."""


class Reception:
    """`names`: of brokers, by their identities; those that adverts tell of are added."""

    def __init__(
        self,
        me: str,
        identity: int,
        names: dict[int, str],
        links: Links,
        gossip: Gossip,
        routes: RouteTable,
        forwarding: Forwarding,
        herald: Herald,
        source: Source,
        sink: Sink,
    ) -> None:
        self._me = me
        self._identity = identity
        self._names = names
        self._links = links
        self._gossip = gossip
        self._routes = routes
        self._forwarding = forwarding
        self._herald = herald
        self._source = source
        self._sink = sink
        self._is_stirred = False
        self.violations = 0

    def take(self, neighbour: Neighbour, data: bytes, lane: Lane, now: Nanos) -> bool:
        """Bytes from a neighbour; whether more came than parcels and probes."""
        self._is_stirred = False
        try:
            for kind, body in neighbour.frames(data, lane):
                if neighbour.greeted or kind == FrameType.HELLO:
                    self._frame(neighbour, kind, body, now)
                elif lane is Lane.CONTROL:
                    raise ProtocolViolation("the first frame of a connection must be a greeting")
        except _Goodbye as goodbye:
            self._close(neighbour, goodbye.reason, now)
        except ProtocolViolation as violation:
            self.violations += 1
            self._close(neighbour, violation.reason, now)
        return self._is_stirred

    def _close(self, neighbour: Neighbour, reason: str, now: Nanos) -> None:
        self._is_stirred = True
        self._links.close(neighbour, reason, now)

    def _frame(self, neighbour: Neighbour, kind: int, body: memoryview, now: Nanos) -> None:
        # Nearly all are of the first two types, and a constant is much quicker than a member of an enumeration.
        if kind == _PARCEL:
            entry = self._routes.keyed.get(wire.key_of(body))
            name = NO_ROUTE if entry is None else entry.name
            header, rest = wire.read_parcel(body, name, neighbour.health.latency_ns // US)
            self._parcel(neighbour, entry, header, rest, now)
            return
        if kind == _NOTICE:
            neighbour.noticed(wire.read_notice(body), now)
            return
        match kind:
            case FrameType.PING:
                neighbour.send_urgent(wire.pong(wire.read_token(body)))
            case FrameType.PONG:
                neighbour.answered(wire.read_token(body), now)
            case FrameType.DETOUR:
                self._detour(neighbour, wire.read_detour(body), now)
            case FrameType.ROUTE:
                message = decode(body)
                if not isinstance(message, Establish):
                    raise ProtocolViolation("a route frame that describes no route")
                self._control(neighbour, message, now)
            case FrameType.CONTROL:
                sequence, content = wire.read_control(body)
                neighbour.check_order(sequence)
                self._control(neighbour, decode(content), now)
            case FrameType.HELLO:
                self._hello(neighbour, wire.read_hello(body), now)
            case _:
                raise ProtocolViolation(f"a frame of unknown type {kind}")

    # Control

    def _hello(self, neighbour: Neighbour, hello: wire.Hello, now: Nanos) -> None:
        self._is_stirred = True
        if neighbour.greeted:
            raise ProtocolViolation("a second greeting")
        if hello.name != neighbour.name:
            raise ProtocolViolation(f"calls itself {hello.name}, expected {neighbour.name}")
        if hello.incarnation != neighbour.incarnation:
            self._routes.hop_restarted(hello.name)
        neighbour.greet(hello.incarnation, now)
        self._routes.origin_restarted(hello.name, hello.incarnation)
        self._gossip.greet(neighbour)

    def _control(self, neighbour: Neighbour, message: Message, now: Nanos) -> None:
        self._is_stirred = True
        sender = neighbour.name
        match message:
            case Advert() | Interest() | InterestWanted() | Summary() | Birth() | Proven():
                self._learn(self._gossip.hear(sender, message, now), now)
                if isinstance(message, Advert):
                    self._names[wire.broker_id(message.broker)] = message.broker
            case Establish():
                if message.origin == self._me:
                    raise ProtocolViolation("a route of our own that we did not make")
                if self._gossip.may_live(message.origin, message.incarnation):
                    letters, _ = self._routes.establish(sender, message, now)
                    self._herald.letters += letters
            case Established():
                letters, ours = self._routes.acknowledged(sender, message)
                self._herald.letters += letters
                if ours and self._herald.established(message.route, message.version):
                    self._herald.effects.append(RouteEstablished(message.route, message.version))
            case Teardown():
                if message.origin == self._me:
                    raise ProtocolViolation("a route of our own torn down by another")
                if self._gossip.may_live(message.origin, message.incarnation):
                    self._herald.letters += self._routes.tear_down(sender, message)
            case Receipt():
                self._receipt(message, now)
            case Farewell(reason):
                raise _Goodbye(f"closed by the neighbour: {reason}")
            case _:
                assert_never(message)

    def _learn(self, news: News, now: Nanos) -> None:
        for broker, incarnation in news.proven:
            self._routes.origin_lives(broker, incarnation)
            self._forwarding.duplicates.forget_after(wire.broker_id(broker), incarnation)
        for broker, incarnation in news.restarted:
            self._routes.origin_restarted(broker, incarnation)
        for broker in news.left:
            self._source.left(broker)
        for broker, filters in news.needed:
            self._source.needed(broker, filters, now)

    def _receipt(self, receipt: Receipt, now: Nanos) -> None:
        if receipt.to == self._me:
            self._source.receipt(receipt, now)
        elif receipt.hops_left:
            self._forwarding.post(msgspec.structs.replace(receipt, hops_left=receipt.hops_left - 1))

    # Parcels

    def _parcel(self, neighbour: Neighbour, entry: Entry | None, header: Header, rest: memoryview, now: Nanos) -> None:
        if entry is None:
            self._forwarding.counters.unroutable_dropped += 1
            return
        if header.origin == self._identity:
            self._forwarding.counters.duplicates_dropped += 1
            return
        if header.flags & _WATCHED:
            neighbour.notice_parcel(header, now)
        if not self._forwarding.duplicates.is_new(header.origin, header.incarnation, header.sequence):
            self._forwarding.counters.duplicates_dropped += 1
            return
        if entry.next_hops:
            self._forwarding.forward(entry, header, rest, now, neighbour.name, now)
        if entry.deliver:
            self._arrive(header, rest, now)

    def _detour(self, neighbour: Neighbour, detour: wire.Detour, now: Nanos) -> None:
        header, rest = wire.read_long(detour.parcel, neighbour.health.latency_ns // US)
        if detour.hops[detour.position] != self._identity:
            raise ProtocolViolation("a detour that does not pass here")
        if header.flags & _WATCHED:
            neighbour.notice_parcel(header, now)
        if detour.position + 1 < len(detour.hops):
            self._forwarding.pass_on(detour.hops, detour.position, header, rest, now, now)
        elif not self._gossip.may_live(self._names.get(header.origin, ""), header.incarnation):
            # A life that has not been would take the place of the one that is in the windows of duplicates.
            self._forwarding.counters.unroutable_dropped += 1
        elif not self._forwarding.duplicates.is_new(header.origin, header.incarnation, header.sequence):
            self._forwarding.counters.duplicates_dropped += 1
        elif header.flags & _DIRECT:
            self._arrive(header, rest, now)
        elif (entry := self._routes.entry_of(header)) is not None:
            self._forwarding.forward(entry, header, rest, now, None, now)
            if entry.deliver:
                self._arrive(header, rest, now)

    def _arrive(self, header: Header, rest: memoryview, now: Nanos) -> None:
        try:
            self._sink.arrive(header, bytes(rest), self._names.get(header.origin, "?"), now)
        except BadContent:
            # Its origin's fault, not the neighbour's that passed it on untouched.
            self.violations += 1
