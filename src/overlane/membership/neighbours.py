"""The neighbours of one broker in a membership, and how it sends to each of them."""

from collections.abc import Mapping
from dataclasses import dataclass

from overlane.membership.carrier import Carrier
from overlane.membership.endpoint import Endpoint
from overlane.membership.membership import LINK_QUEUE_BYTES, Emulated, Membership


@dataclass(frozen=True, slots=True)
class NeighbourConfig:
    """The link to one neighbour, as this broker sees it."""

    addresses: tuple[Endpoint, ...] = ()
    """Where it is dialled, in turn. Empty: it dials."""
    failure: float = 0.0
    queue_bytes: int = LINK_QUEUE_BYTES
    rate_bps: int | None = None
    """Of all that is sent, datagrams included."""
    has_datagrams: bool = True
    """Whether datagrams go beside the connection."""
    emulated: Emulated | None = None
    is_expected: bool = True
    """Whether it should be there from the start."""
    is_direct: bool = False
    """Whether the link serves deadlines only, between two edges."""
    carrier: Carrier | None = None
    """The MQTT broker that carries the link, instead of the addresses."""
    is_encrypted: bool = False
    """Whether the link is encrypted by other means than TLS."""
    dscp: int = 0
    """The code point that packets to it carry."""


@dataclass(frozen=True, slots=True)
class NeighbourChanges:
    """What the driver of the links has to do: end the links that are gone, set up the others."""

    gone: tuple[str, ...]
    set: Mapping[str, NeighbourConfig]
    """New or changed."""


def neighbours_of(membership: Membership, me: str) -> dict[str, NeighbourConfig]:
    """By name, in order. None where this broker is no member."""
    members = {member.name: member for member in membership.members}
    found: dict[str, NeighbourConfig] = {}
    for link in membership.links:
        if me not in link.ends:
            continue
        peer = members[link.ends[1] if link.ends[0] == me else link.ends[0]]
        direction = link.from_end(me)
        found[peer.name] = NeighbourConfig(
            addresses=peer.addresses,
            failure=link.failure,
            queue_bytes=direction.queue_bytes,
            rate_bps=direction.rate_bps,
            has_datagrams=link.has_datagrams,
            emulated=direction.emulated,
            is_expected=peer.is_expected,
            is_direct=link.is_direct,
            carrier=link.carrier,
            is_encrypted=link.is_encrypted,
            dscp=link.dscp,
        )
    return dict(sorted(found.items()))


def neighbour_changes(old: Mapping[str, NeighbourConfig], new: Mapping[str, NeighbourConfig]) -> NeighbourChanges:
    return NeighbourChanges(
        tuple(peer for peer in old if peer not in new),
        {peer: config for peer, config in new.items() if old.get(peer) != config},
    )
