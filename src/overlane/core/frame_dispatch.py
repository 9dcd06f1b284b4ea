"""Frame dispatch: frames received from neighbours, handed to the part of the broker that handles them.

Parcels go to forwarding and to the sink; hop acknowledgements and pongs to the link that they came over; control
messages to gossip, signalling and source; receipts for other brokers are passed on. A violation of the protocol closes
the link of the neighbour that sent it and changes nothing else.
"""

from typing import assert_never

import msgspec

from overlane.core.events import Lane
from overlane.core.flows.sink import Sink
from overlane.core.flows.source import Source
from overlane.core.gossip.gossip import Gossip, News
from overlane.core.link_supervisor import LinkSupervisor
from overlane.core.links.neighbour import Neighbour
from overlane.core.routing.forwarding.early_parcels import EarlyParcels
from overlane.core.routing.forwarding.forwarding import Forwarding, as_receipt
from overlane.core.routing.signalling.route_announcer import RouteAnnouncer
from overlane.core.routing.signalling.route_establishment import RouteEntry, RouteTable
from overlane.core.routing.signalling.route_messages import Outbox, acknowledgement, key_of, send_all
from overlane.core.routing.signalling.route_refresh import take_refresh, take_request
from overlane.core.units import US, Nanos
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import (
    Advert,
    ControlMessage,
    Establish,
    Farewell,
    ForNeighbour,
    GossipSummary,
    IncarnationProof,
    InterestRequest,
    InterestUpdate,
    Namesake,
    NumberedEstablish,
    ProvenIncarnations,
    PublishScope,
    Receipt,
    RouteRefresh,
    RouteRequest,
    ScopeComplete,
    ScopedInterest,
    Teardown,
    decode,
)
from overlane.core.wire.fragments import read_fragment
from overlane.core.wire.frame_codec import NO_ROUTE, FrameType, Header, ParcelFlag
from overlane.core.wire.parcel import BadContent
from overlane.core.wire.route_answers import (
    Answer,
    Confirmation,
    WayBack,
    read_answer,
    read_established,
)
from overlane.errors import Failure, InDoubt, ProtocolViolation

_PARCEL = int(FrameType.PARCEL)
_HOP_ACK = int(FrameType.HOP_ACK)
_FRAGMENTED = (FrameType.PARCEL, FrameType.ROUTE, FrameType.DETOUR)
_ACK_REQUESTED = int(ParcelFlag.ACK_REQUESTED)
_DIRECT = int(ParcelFlag.DIRECT)
_RELIABLE = int(ParcelFlag.RELIABLE)
_CONFIRM = int(ParcelFlag.CONFIRM)


class _ClosedByNeighbour(ProtocolViolation):
    """No violation, but it ends a connection in the same way."""


class _NameTaken(ProtocolViolation):
    """The neighbour is not the broker that is known by its name."""


class FrameDispatcher:
    """`names`: of brokers, by their identities; those in adverts are added."""

    def __init__(
        self,
        me: str,
        identity: int,
        names: dict[int, str],
        links: LinkSupervisor,
        gossip: Gossip,
        routes: RouteTable,
        forwarding: Forwarding,
        route_announcer: RouteAnnouncer,
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
        self._route_announcer = route_announcer
        self._source = source
        self._sink = sink
        self._early = EarlyParcels()
        self._has_changes = False
        self.violations = 0
        self.failures: list[Failure] = []
        """Parcels and bytes that failed by our own fault."""

    def take(self, neighbour: Neighbour, data: bytes, lane: Lane, now: Nanos) -> bool:
        """Bytes from a neighbour; whether more came than parcels and probes."""
        self._has_changes = False
        try:
            for kind, body in neighbour.frames(data, lane):
                if neighbour.greeted or kind == FrameType.HELLO:
                    self._frame(neighbour, kind, body, now)
                elif lane is Lane.CONTROL:
                    self._refusal(neighbour, kind, body, now)
                    raise ProtocolViolation("the first frame of a connection must be a greeting")
        except _NameTaken as taken:
            self._gossip.own_name.conflict(neighbour.name, taken.reason, now)
            self._has_changes = True
            self._links.close(neighbour, taken.reason, now, is_name_taken=True)
        except _ClosedByNeighbour as goodbye:
            self._close(neighbour, goodbye.reason, now)
        except ProtocolViolation as violation:
            self.violations += 1
            self._close(neighbour, violation.reason, now)
        return self._has_changes

    def _refusal(self, neighbour: Neighbour, kind: int, body: memoryview, now: Nanos) -> None:
        """A neighbour that refuses the link may send the reason instead of a greeting."""
        if kind == FrameType.CONTROL:
            message = decode(frame_codec.read_control(body)[1])
            if isinstance(message, Farewell):
                self._control(neighbour, message, now)

    def _close(self, neighbour: Neighbour, reason: str, now: Nanos) -> None:
        self._has_changes = True
        self._links.close(neighbour, reason, now)

    def _frame(self, neighbour: Neighbour, kind: int, body: memoryview, now: Nanos) -> None:
        # Nearly all are of the first two types, and a constant is much quicker than a member of an enumeration.
        if kind == _PARCEL:
            entry = self._routes.keyed.get(frame_codec.key_of(body))
            if entry is None:
                self._hold(neighbour, body, now)
                return
            header, rest = frame_codec.read_parcel(body, entry.name, neighbour.health.latency_ns // US)
            self._parcel(neighbour, entry, header, rest, now)
            return
        if kind == _HOP_ACK:
            neighbour.handle_hop_ack(frame_codec.read_hop_ack(body), now)
            return
        match kind:
            case FrameType.PING:
                neighbour.send_urgent(frame_codec.pong(frame_codec.read_token(body)))
            case FrameType.PONG:
                neighbour.answered(frame_codec.read_token(body), now)
            case FrameType.DETOUR:
                self._detour(neighbour, frame_codec.read_detour(body), now)
            case FrameType.FRAGMENT:
                if (whole := neighbour.reassembly.add(read_fragment(body))) is not None:
                    self._reassembled(neighbour, whole, now)
            case FrameType.ROUTE:
                message = decode(body)
                if not isinstance(message, Establish):
                    raise ProtocolViolation("a route frame that describes no route")
                self._signal(neighbour.name, message, now)
            case FrameType.CONTROL:
                sequence, content = frame_codec.read_control(body)
                neighbour.check_order(sequence)
                self._control(neighbour, decode(content), now)
            case FrameType.CONFIRMATION | FrameType.RECEIPT:
                self._answered(neighbour, *read_answer(kind, body), now)
            case FrameType.ESTABLISHED:
                self._established(neighbour, *read_established(body), now)
            case FrameType.HELLO:
                self._hello(neighbour, frame_codec.read_hello(body), now)
            case _:
                raise ProtocolViolation(f"a frame of unknown type {kind}")

    def _reassembled(self, neighbour: Neighbour, whole: bytes, now: Nanos) -> None:
        frames, used = frame_codec.split(whole)
        if used < len(whole) or any(kind not in _FRAGMENTED for kind, _ in frames):
            raise ProtocolViolation("fragments that make no frame")
        for kind, body in frames:
            self._frame(neighbour, kind, body, now)

    # Control

    def _hello(self, neighbour: Neighbour, hello: frame_codec.Hello, now: Nanos) -> None:
        self._has_changes = True
        if neighbour.greeted:
            raise ProtocolViolation("a second greeting")
        if hello.name != neighbour.name:
            raise ProtocolViolation(f"calls itself {hello.name}, expected {neighbour.name}")
        if (other := self._gossip.own_name.linked_as_another(hello.name, hello.instance)) is not None:
            raise _NameTaken(f"another broker named {hello.name} is linked with {other}")
        if hello.incarnation != neighbour.incarnation:
            self._routes.hop_restarted(hello.name)
        neighbour.greet(hello.incarnation, now, hello.tier)
        self._routes.origin_restarted(hello.name, hello.incarnation)
        self._gossip.greet(neighbour)

    def _control(self, neighbour: Neighbour, message: ControlMessage, now: Nanos) -> None:
        sender = neighbour.name
        match message:
            case Receipt(to=to) if to != self._me:
                if message.hops_left:
                    self._forwarding.post(msgspec.structs.replace(message, hops_left=message.hops_left - 1))
                return
            case Advert() if self._gossip.is_known(message):
                return
            case NumberedEstablish() | Establish():
                described = message if isinstance(message, Establish) else neighbour.received_names.expand(message)
                neighbour.routes.received(key_of(described))
                self._signal(sender, described, now)
                return
            case Teardown() | RouteRefresh() | RouteRequest():
                self._signal(sender, message, now)
                return
        self._has_changes = True
        match message:
            case (
                Advert()
                | InterestUpdate()
                | InterestRequest()
                | GossipSummary()
                | IncarnationProof()
                | ProvenIncarnations()
                | ScopedInterest()
                | PublishScope()
                | ScopeComplete()
            ):
                self.learn(self._gossip.hear(sender, message, now), now)
            case Receipt():
                self._source.receipt(message, now)
            case ForNeighbour(body):
                self._links.neighbour_said(sender, body)
            case Namesake(detail):
                self._gossip.own_name.conflict(self._me, detail, now)
            case Farewell(reason, is_name_taken):
                if is_name_taken:
                    self._gossip.own_name.conflict(self._me, f"{sender} refuses this one: {reason}", now)
                raise _ClosedByNeighbour(f"closed by the neighbour: {reason}")
            case _:
                assert_never(message)

    def _signal(self, sender: str, message: Establish | Teardown | RouteRefresh | RouteRequest, now: Nanos) -> None:
        """What concerns the routes of another broker, or answers what we have sent of ours."""
        routes = self._routes
        if isinstance(message, RouteRequest):
            self._send(take_request(routes, sender, message), now)
            return
        if message.origin == self._me:
            raise ProtocolViolation("a route of our own, told by another")
        if not self._gossip.is_known_incarnation(message.origin, message.incarnation):
            return
        match message:
            case Establish():
                self._send(routes.establish(sender, message, now)[0], now)
                if self._early:
                    self._go_on(key_of(message), now)
            case Teardown():
                self._send(routes.tear_down(sender, message), now)
            case RouteRefresh():
                self._send(take_refresh(routes, sender, message, now), now)
            case _:
                assert_never(message)

    def _send(self, outbox: Outbox, now: Nanos) -> None:
        if outbox:
            send_all(outbox, self._links.neighbours, now)

    def _established(self, neighbour: Neighbour, number: int, key: bytes, now: Nanos) -> None:
        """A next hop has acknowledged a version of a route."""
        entry = self._routes.keyed.get(neighbour.routes.key_of(number, key))
        if entry is None:
            return  # it is over
        route, version = entry.name.route, entry.name.version
        outbox, ours = self._routes.acknowledged(neighbour.name, acknowledgement(entry.message))
        self._send(outbox, now)
        if ours:
            self._route_announcer.established(route, version)

    def learn(self, news: News, now: Nanos) -> None:
        """What gossip means to the other parts."""
        for broker in news.admitted:
            self._names[frame_codec.broker_id(broker)] = broker
        for broker, incarnation in news.proven:
            self._routes.origin_proven(broker, incarnation)
            self._forwarding.duplicates.forget_after(frame_codec.broker_id(broker), incarnation)
        for broker, incarnation in news.restarted:
            self._routes.origin_restarted(broker, incarnation)
        for broker in news.left:
            self._source.left(broker)
        for broker, filters in news.needed:
            self._source.needed(broker, filters, now)
        for broker in news.forgotten:
            if not self._links.is_neighbour(broker):
                identity = frame_codec.broker_id(broker)
                self._names.pop(identity, None)
                self._forwarding.duplicates.forget(identity)

    def _answered(self, neighbour: Neighbour, number: int, told: Answer, now: Nanos) -> None:
        """Parcels have come to a destination of a route that begins here, or passes."""
        entry = self._routes.keyed.get(neighbour.routes.key_of(number, told.key))
        if entry is None:
            return  # the route has changed meanwhile
        if entry.name.origin != self._identity:
            self._forwarding.confirm(entry, told._replace(key=entry.key))
        elif max(told.destination, told.last_hop) < len(entry.message.brokers):
            self._has_changes = True
            self._source.receipt(as_receipt(entry, told), now)

    # Parcels

    def _hold(self, neighbour: Neighbour, body: memoryview, now: Nanos) -> None:
        """A parcel of a route that is not known, or not yet."""
        lost = frame_codec.read_parcel(body, NO_ROUTE)
        if not self._early.add(frame_codec.key_of(body), neighbour.name, bytes(body), now):
            self._lost(*lost)

    def _go_on(self, key: bytes, now: Nanos) -> None:
        """A route is known, if there was room for it: its parcels that came before go on, as much older."""
        entry = self._routes.keyed.get(key)
        if entry is None:
            return
        for early in self._early.take(key):
            neighbour = self._links.neighbours.get(early.peer)
            if neighbour is None:
                continue
            waited_ns = now - early.came_ns
            elapsed_us = (neighbour.health.latency_ns + waited_ns) // US
            header, rest = frame_codec.read_parcel(memoryview(early.body), entry.name, elapsed_us)
            self._parcel(neighbour, entry, header, rest, now, waited_ns)

    def drop_early(self, now: Nanos) -> None:
        """Give up parcels whose route has not been described for long."""
        for early in self._early.take_expired(now):
            self._lost(*frame_codec.read_parcel(memoryview(early.body), NO_ROUTE))

    def _parcel(
        self,
        neighbour: Neighbour,
        entry: RouteEntry,
        header: Header,
        rest: memoryview,
        now: Nanos,
        waited_ns: Nanos = 0,
    ) -> None:
        if header.origin == self._identity:
            self._forwarding.counters.duplicates_dropped += 1
            return
        if header.flags & _ACK_REQUESTED:
            neighbour.schedule_hop_ack(header, now, waited_ns)
        if header.flags & _CONFIRM and entry.deliver:
            # Each copy: the source learns which of its paths work.
            if (ends := entry.ends_over(neighbour.name)) is not None:
                self._forwarding.confirm(entry, Confirmation(entry.key, *ends, header.sequence, header.age_us))
            else:
                self._confirm(header, neighbour.name, [])
        if not self._forwarding.duplicates.record(header.origin, header.incarnation, header.sequence):
            self._forwarding.counters.duplicates_dropped += 1
            return
        if entry.next_hops:
            self._forwarding.forward(entry, header, rest, now, neighbour.name, now)
        if entry.deliver:
            shared = entry.message.shared
            if not header.flags & _RELIABLE:
                self._arrive(header, rest, [], now, None, shared)
                return
            ends = entry.ends_over(neighbour.name)
            way_back = None if ends is None else WayBack(entry.key, *ends)
            self._arrive(header, rest, entry.return_path(neighbour.name), now, way_back, shared)

    def _detour(self, neighbour: Neighbour, detour: frame_codec.Detour, now: Nanos) -> None:
        header, rest = frame_codec.read_long(detour.parcel, neighbour.health.latency_ns // US)
        if detour.hops[detour.position] != self._identity:
            raise ProtocolViolation("a detour that does not pass here")
        if header.flags & _ACK_REQUESTED:
            neighbour.schedule_hop_ack(header, now)
        if detour.position + 1 < len(detour.hops):
            self._forwarding.pass_on(detour.hops, detour.position, header, rest, now, now)
        elif not self._gossip.is_known_incarnation(self._names.get(header.origin, ""), header.incarnation):
            # An invented incarnation would displace the real one in the duplicate windows.
            self._lost(header, rest)
        else:
            self._end_of_detour(neighbour, detour, header, rest, now)

    def _end_of_detour(
        self, neighbour: Neighbour, detour: frame_codec.Detour, header: Header, rest: memoryview, now: Nanos
    ) -> None:
        is_direct = bool(header.flags & _DIRECT)
        entry = None if is_direct else self._routes.entry_of(header)
        return_path = self._return_path(detour, header)
        if header.flags & _CONFIRM and (is_direct or (entry is not None and entry.deliver)):
            self._confirm(header, neighbour.name, return_path)
        if not self._forwarding.duplicates.record(header.origin, header.incarnation, header.sequence):
            self._forwarding.counters.duplicates_dropped += 1
        elif is_direct:
            self._arrive(header, rest, return_path, now)
        elif entry is not None:
            self._forwarding.forward(entry, header, rest, now, None, now)
            if entry.deliver:
                self._arrive(header, rest, return_path, now, None, entry.message.shared)
        else:
            self._lost(header, rest)

    def _lost(self, header: Header, rest: memoryview) -> None:
        """Nobody knows where it goes."""
        losses = self._forwarding.losses
        losses.unroutable += losses.of_parcel(header, rest)

    def _return_path(self, detour: frame_codec.Detour, header: Header) -> list[str]:
        """To the source, if the detour began there."""
        if header.version:
            return []  # it began at a broker on the route
        names = [self._names.get(identity) for identity in (header.origin, *detour.hops[:-1])]
        found = [name for name in reversed(names) if name is not None]
        return found if len(found) == len(names) else []

    def _confirm(self, header: Header, came_from: str, return_path: list[str]) -> None:
        """Tell the source that a parcel has come on no route, or not as its route says: at once, whatever becomes of it
        here."""
        source = self._names.get(header.origin)
        if source is not None:
            self._has_changes = True
            receipt = self._sink.confirmation(source, header, came_from, return_path)
            self._forwarding.post(receipt)

    def _arrive(
        self,
        header: Header,
        rest: memoryview,
        return_path: list[str],
        now: Nanos,
        way_back: WayBack | None = None,
        is_shared: bool = False,
    ) -> None:
        try:
            self._sink.arrive(header, bytes(rest), now, return_path, way_back, is_shared)
        except BadContent:
            # Its origin's fault, not the neighbour's that passed it on untouched.
            self.violations += 1
        except InDoubt:
            raise
        except Exception as error:
            # The neighbour that passed it on is not closed for it: the origin would send it again by any other way.
            self.failures.append(Failure("parcel", self._names.get(header.origin, "?"), error))
