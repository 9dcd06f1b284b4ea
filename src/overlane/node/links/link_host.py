"""What a connection to a neighbour asks of the broker that it belongs to."""

import asyncio
from typing import TYPE_CHECKING, Protocol

from overlane.core.links.neighbour import Chunk
from overlane.core.units import Nanos
from overlane.node.links.datagrams.link import DatagramLink
from overlane.node.links.emulation import Emulation
from overlane.node.links.greeting import Credentials, DatagramSession, Offer
from overlane.node.links.multipath.paths import DatagramPaths
from overlane.node.links.pacing import Pace

if TYPE_CHECKING:
    from overlane.node.links.overlay_link import OverlayLink


class LinkHost(Protocol):
    def now(self) -> Nanos: ...
    def credentials(self, transport: asyncio.Transport) -> Credentials: ...
    def offer(self, transport: asyncio.Transport) -> Offer | None:
        """Of datagrams beside this connection."""

    def datagrams(
        self, link: "OverlayLink", session: DatagramSession, transport: asyncio.Transport
    ) -> DatagramLink | DatagramPaths | None:
        """Both ends have offered them; None if they are not wanted on this link."""

    def emulation(self, peer: str) -> Emulation | None: ...
    def pace(self, peer: str) -> Pace | None: ...
    def dscp(self, peer: str) -> int:
        """The code point of packets to a neighbour; 0: none."""

    def greeted(self, link: "OverlayLink") -> bool:
        """Whether the connection is to be kept."""

    def moves(self, link: "OverlayLink", link_id: bytes, transport: asyncio.Transport, data: bytes) -> None:
        """A connection is there that is to continue the link of this id; `data` came behind its greeting."""

    def passed_in(self, link: "OverlayLink", transport: asyncio.Transport, data: bytes) -> bool:
        """The neighbour has dialled to pass the connection of a client on, which begins with these bytes. Whether the
        transport has another protocol from now on."""

    def received(self, link: "OverlayLink", data: bytes) -> None:
        """Says `recorded` where it made records that are to be written."""

    def is_crowded(self, besides: str) -> bool:
        """Whether much waits for some other neighbour than this one."""

    def left_bytes(self, besides: str) -> int:
        """How much has left for other neighbours than this one, since the beginning."""

    def patience_ns(self, peer: str) -> Nanos:
        """How long what comes from a neighbour can be left unread; NEVER if nothing of it is urgent."""

    def pull(self, peer: str, bytes_max: int) -> bytes:
        """What to send next, up to about so many bytes; if there is less than that, it is all there is."""

    def pull_apart(self, peer: str, bytes_max: int, now: Nanos) -> list[Chunk]:
        """As `pull`, chunk by chunk."""

    def pull_urgent(self, peer: str, bytes_max: int) -> list[Chunk]:
        """As `pull_apart`, of what is worth a datagram."""

    def sent(self) -> None:
        """Something may have left between turns."""

    def lost(self, link: "OverlayLink", why: str) -> None: ...
    def failed(self, link: "OverlayLink", error: Exception) -> None:
        """A fault of ours."""
