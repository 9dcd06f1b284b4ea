"""What a broker shows of its links: for people, tests and metrics. Looking changes nothing."""

from dataclasses import dataclass

from overlane.core.links.link_health import LinkState
from overlane.core.links.neighbour import Neighbour
from overlane.core.units import Nanos


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One link, as this end of it believes it to be. Latency is one way; loss is in millionths."""

    peer: str
    state: LinkState
    is_open: bool
    """Connected, and the neighbour has greeted."""
    is_measured: bool
    """Whether latency, jitter and loss are measured; before the first answer they are guesses."""
    latency_ns: Nanos
    jitter_ns: Nanos
    loss_millionths: int
    queue_parcels: int
    queue_bytes: int
    queue_bytes_max: int


def view_of(neighbour: Neighbour) -> LinkStatus:
    health, queue = neighbour.health, neighbour.queue
    return LinkStatus(
        neighbour.name,
        health.state,
        neighbour.greeted,
        health.measured,
        health.latency_ns,
        health.jitter_ns,
        health.loss_millionths,
        len(queue),
        queue.bytes,
        queue.bytes_max,
    )
