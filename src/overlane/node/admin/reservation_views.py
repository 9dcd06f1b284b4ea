"""Reservations of a running broker, as views for operators."""

import math

from overlane.adminapi.views import (
    AdvertisedView,
    LinkFlowView,
    LinkReservationsView,
    ReservationsView,
    ReservationView,
    TSpecView,
)
from overlane.core.broker import OverlayBroker
from overlane.core.units import MS
from overlane.core.wire.frame_codec import broker_id
from overlane.planning.reserve import TSpec
from overlane.pubsub.reservations.request import link_tspec
from overlane.pubsub.reservations.reserving import Reserved
from overlane.pubsub.reservations.service import Reservations
from overlane.turn.reserving import RsvpNetwork


def reservations_view(core: OverlayBroker, service: Reservations, reserving: RsvpNetwork) -> ReservationsView:
    return ReservationsView(
        advertised=_advertised(service, reserving),
        reservations=tuple(_reservation(one, reserving) for one in service.reserving.requests.values()),
        links=_links(core, reserving),
        refused_messages=reserving.bad_messages,
    )


def _advertised(service: Reservations, reserving: RsvpNetwork) -> tuple[AdvertisedView, ...]:
    found = []
    for flow in service.advertising.flows.values():
        links, _ = reserving.trees.get(flow.number, (frozenset(), frozenset()))
        found.append(
            AdvertisedView(
                filter=flow.filter,
                tspec=_tspec(flow.policer.tspec),
                excess=flow.excess,
                owners=tuple(sorted(flow.owners)),
                subscribers=tuple(sorted(flow.leaves)),
                links=tuple(sorted(links)),
                messages=flow.messages,
                excess_messages=flow.excess_messages,
            )
        )
    return tuple(found)


def _reservation(one: Reserved, reserving: RsvpNetwork) -> ReservationView:
    verdict, request = one.verdict, one.request
    delays = reserving.delays.of(one.filter)
    is_guaranteed = verdict.service == "guaranteed"
    return ReservationView(
        client=one.key[0],
        filter=one.key[1],
        state=one.state,
        service=verdict.service,
        asked=request.service,
        tspec=_tspec(link_tspec(request.profile, one.filter, "subscriber")),
        latency_ms=None if request.latency_s is None else request.latency_s * 1e3,
        reserved=verdict.rate,
        slack_ms=0.0 if is_guaranteed else None,
        bound_ms=None if verdict.bound_s is None else verdict.bound_s * 1e3,
        delay_mean_ms=delays.sum_ns / delays.messages / MS if delays.messages else None,
        delay_max_ms=delays.max_ns / MS if delays.messages else None,
        messages=delays.messages,
        late=delays.late(verdict.bound_s),
        reason=verdict.reason,
        bottleneck=verdict.bottleneck,
        advertised=tuple(sorted(set(one.asked.values()))),
        style=request.style,
    )


def _links(core: OverlayBroker, reserving: RsvpNetwork) -> tuple[LinkReservationsView, ...]:
    found = []
    filters = reserving.filters()
    for peer, terms in sorted(reserving.all_terms().items()):
        ledger = None if reserving.agent is None else reserving.agent.ledgers.get(broker_id(peer))
        counters = core.reserved_counters(peer)
        flows = []
        for (session, senders), rate in ledger or ():
            counted = counters.get((session, senders))
            flows.append(
                LinkFlowView(
                    filter=filters.get(session, "?"),
                    rate=rate,
                    share=rate / terms.rate if terms.rate else 0.0,
                    reserved_bytes=0 if counted is None else counted.reserved_bytes,
                    excess_bytes=0 if counted is None else counted.excess_bytes,
                )
            )
        promised = 0 if ledger is None else ledger.promised
        found.append(
            LinkReservationsView(
                peer=peer, rate=terms.rate, capacity=terms.capacity, promised=promised, flows=tuple(flows)
            )
        )
    return tuple(found)


def reserved_share(reserving: RsvpNetwork, peer: str) -> float:
    """The share of its rate that the link to a neighbour has promised."""
    terms = reserving.links.get(peer)
    ledger = None if reserving.agent is None else reserving.agent.ledgers.get(broker_id(peer))
    return ledger.promised / terms.rate if ledger is not None and terms is not None and terms.rate else 0.0


def _tspec(tspec: TSpec) -> TSpecView:
    return TSpecView(
        r=tspec.rate,
        b=tspec.bucket_bytes,
        p=None if math.isinf(tspec.peak) else tspec.peak,
        m=tspec.size_min_bytes,
        M=tspec.size_max_bytes,
    )
