"""The neighbours that the network file gives a broker, when it starts and whenever the file is read again.

What the file says of a link is compared with what it said before: a link that is new is joined, one that is gone is
parted with, one that has changed goes on with its new addresses and conditions, without being dropped. Neighbours that
an operator has named meanwhile stay, until the file has had them and has them no more.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from overlane.core.broker import OverlayBroker
from overlane.network.endpoints import endpoints
from overlane.network.schema import Back, Emulated, Endpoint, Link, Network
from overlane.node.links.emulation import Conditions
from overlane.node.links.overlay import Overlay, Way

log = logging.getLogger("overlane.node")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the file says of one neighbour."""

    addresses: tuple[Endpoint, ...]
    conditions: Conditions | None
    failure: float
    queue_bytes: int
    is_expected: bool
    """Whether it should be there from the start."""
    way: Way


class ConfiguredNeighbours:
    def __init__(self, name: str, file: Path, overlay: Overlay, core: OverlayBroker, *, is_emulated: bool) -> None:
        self._name = name
        self._file = file
        self._overlay = overlay
        self._core = core
        self._is_emulated = is_emulated
        self._wanted: dict[str, Wanted] = {}

    def begin(self, network: Network) -> None:
        self.change(network)
        self._overlay.settle()

    def change(self, network: Network) -> None:
        """The file says this from now on."""
        before, self._wanted = self._wanted, self._read(network)
        for peer in before.keys() - self._wanted.keys():
            self._overlay.part(peer)
            log.info("%s is no neighbour any more", peer)
        for peer, wanted in self._wanted.items():
            if wanted != before.get(peer):
                self._core.expect_link(peer, wanted.failure, wanted.queue_bytes)
                self._overlay.join(
                    peer,
                    wanted.addresses,
                    wanted.conditions,
                    is_expected=wanted.is_expected,
                    way=wanted.way,
                )

    def _read(self, network: Network) -> dict[str, Wanted]:
        reach = {broker.name: broker.reach for broker in network.brokers}
        absent = network.absent_at_start()
        found: dict[str, Wanted] = {}
        for link in network.links:
            if self._name in link.ends:
                (other,) = (end for end in link.ends if end != self._name)
                where = reach[other]
                if where is None:
                    where = (endpoints(network, other, str(self._file)).overlay,)
                own = link.from_end(self._name)
                found[other] = Wanted(
                    where,
                    self._conditions(link),
                    link.failure,
                    own.queue_bytes,
                    other not in absent,
                    Way(link.transport == "datagram", own.rate_bps),
                )
        return found

    def _conditions(self, link: Link) -> Conditions | None:
        own = link.from_end(self._name)
        played: Emulated | Link | Back | None = own if self._is_emulated and link.emulate is None else link.emulate
        if played is None:
            return None
        if played == Emulated(
            latency_ns=link.latency_ns, jitter_ns=link.jitter_ns, loss=link.loss, rate_bps=link.rate_bps
        ):
            played = own  # as the link itself is, which may not be the same in this direction
        return Conditions(
            latency_ns=played.latency_ns, jitter_ns=played.jitter_ns, loss=played.loss, rate_bps=played.rate_bps
        )
