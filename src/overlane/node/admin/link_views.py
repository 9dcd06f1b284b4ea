"""Views of links: what the core has measured, what the connection and its datagrams have carried, what is reserved."""

from overlane.adminapi.views import DatagramsView, EmulationView, LinkCondition, LinkView, PathView
from overlane.core.links.link_health import LinkState
from overlane.core.links.link_view import LinkStatus as CoreLinkView
from overlane.core.units import MS
from overlane.node.admin.reservation_views import reserved_share
from overlane.node.links.datagrams.link import DatagramLink
from overlane.node.links.emulation import LinkConditions
from overlane.node.links.multipath.paths import DatagramPaths
from overlane.node.links.overlay_link import OverlayLink
from overlane.turn.reserving import RsvpNetwork

_CONDITIONS: dict[LinkState, LinkCondition] = {
    LinkState.UP: "up",
    LinkState.SUSPECT: "suspect",
    LinkState.FAILED: "failed",
}


def link_view(
    peer: str,
    known: CoreLinkView | None,
    link: OverlayLink | None,
    conditions: LinkConditions | None,
    reserving: RsvpNetwork,
) -> LinkView:
    is_measured = known is not None and known.is_measured
    return LinkView(
        peer=peer,
        state=_CONDITIONS[known.state] if known is not None and known.is_open else "down",
        latency_ms=known.latency_ns / MS if known is not None and is_measured else None,
        jitter_ms=known.jitter_ns / MS if known is not None and is_measured else None,
        loss=known.loss_millionths / 1e6 if known is not None and is_measured else None,
        queue_parcels=known.queue_parcels if known is not None else 0,
        queue_bytes=known.queue_bytes if known is not None else 0,
        queue_bytes_max=known.queue_bytes_max if known is not None else 0,
        bytes_in=link.bytes_in if link is not None else 0,
        bytes_out=link.bytes_out if link is not None else 0,
        datagrams=None if link is None or link.datagrams is None else _datagrams_view(link.datagrams),
        paths=_path_views(link.datagrams) if link is not None and isinstance(link.datagrams, DatagramPaths) else (),
        emulation=None if conditions is None else _emulation_view(conditions),
        reserved=reserved_share(reserving, peer),
    )


def _path_views(paths: DatagramPaths) -> tuple[PathView, ...]:
    return tuple(
        PathView(
            local=path.local_host,
            remote=str(path.remote[0]) if path.remote is not None else "",
            state=state,
            has_connection=path.number == paths.stream_number,
            latency_ms=path.path.flight.rtt_ns / 2 / MS if path.path.flight.is_measured else None,
            loss=path.watched.loss_millionths / 1e6,
            sent=path.sent,
            received=path.received,
        )
        for path, state in paths.views()
    )


def _datagrams_view(datagrams: DatagramLink | DatagramPaths) -> DatagramsView:
    path, flight = datagrams.path, datagrams.path.flight
    return DatagramsView(
        state=path.state.value,
        rtt_ms=flight.rtt_ns / MS if flight.is_measured else None,
        window_bytes=flight.window_bytes,
        frames_bytes_max=path.frames_bytes_max,
        sent=datagrams.sent,
        received=datagrams.received,
        lost=flight.lost_count,
        refused={refusal.value: count for refusal, count in path.refused.items()},
    )


def _emulation_view(conditions: LinkConditions) -> EmulationView:
    return EmulationView(
        latency_ms=conditions.latency_ns / MS,
        jitter_ms=conditions.jitter_ns / MS,
        loss=conditions.loss,
        rate_bps=conditions.rate_bps,
        is_cut=conditions.is_cut,
    )
