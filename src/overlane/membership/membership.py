"""Membership: the brokers of an overlay and the links between them, as one frozen value.

It comes from the network file or from another source, which need not know how it is used. Members are sorted by name
and links by their ends, so that memberships with the same content are equal. A contradictory membership cannot be
created (`BadMembership`), so its users need not check it again.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

import msgspec

from overlane.errors import OverlaneError
from overlane.membership.carrier import Carrier
from overlane.membership.endpoint import Endpoint

Ends: TypeAlias = tuple[str, str]
Role: TypeAlias = Literal["plain", "edge", "routing", "backup"]

LINK_QUEUE_BYTES = 256 * 1024


class BadMembership(OverlaneError, ValueError):
    """Members and links that contradict each other."""

    error_code = "OVL-121"


class Emulated(msgspec.Struct, frozen=True, kw_only=True):
    """How a link between brokers that run is made to behave, so that a wide area can be played on one machine."""

    latency_ns: int = 0
    jitter_ns: int = 0
    loss: float = 0.0
    rate_bps: int | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of the overlay."""

    name: str
    addresses: tuple[Endpoint, ...] = ()
    """Where its neighbours dial it, tried in turn. Empty: nowhere, it dials them."""
    domain: str = ""
    """Brokers of one domain have the same; empty: a domain of its own."""
    role: Role = "plain"
    is_expected: bool = True
    """Whether it should be there from the start."""


class Direction(msgspec.Struct, frozen=True, kw_only=True):
    """What one end of a link needs to know to send over it."""

    queue_bytes: int = LINK_QUEUE_BYTES
    rate_bps: int | None = None
    emulated: Emulated | None = None


class MemberLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link between two members, whose names are in order; `there` is from the first to the second."""

    ends: Ends
    there: Direction = Direction()
    back: Direction = Direction()
    failure: float = 0.0
    """The part of the time that it is down."""
    has_datagrams: bool = True
    is_direct: bool = False
    """Between two edges, for deadlines only: they tell each other nothing but their links over it."""
    carrier: Carrier | None = None
    """The MQTT broker that carries it; None: the ends dial each other."""
    is_encrypted: bool = False
    """By other means than TLS."""
    dscp: int = 0
    """The code point of its packets (RFC 2474), in both directions."""

    def from_end(self, end: str) -> Direction:
        return self.there if end == self.ends[0] else self.back


class Membership(msgspec.Struct, frozen=True):
    """`membership_of` sorts what it is made of."""

    members: tuple[Member, ...] = ()
    links: tuple[MemberLink, ...] = ()

    def __post_init__(self) -> None:
        """BadMembership."""
        _require_sorted("member", [(member.name,) for member in self.members])
        _require_sorted("link", [link.ends for link in self.links])
        known = self.names()
        for link in self.links:
            one, other = link.ends
            if one >= other:
                raise BadMembership(f"link {one}-{other}: found these ends, allowed are two members sorted by name")
            if missing := {one, other} - known:
                raise BadMembership(f"link {one}-{other}: found no member {min(missing)}")

    def names(self) -> frozenset[str]:
        return frozenset(member.name for member in self.members)


def membership_of(members: Iterable[Member], links: Iterable[MemberLink]) -> Membership:
    """BadMembership."""
    return Membership(
        tuple(sorted(members, key=lambda member: member.name)), tuple(sorted(links, key=lambda link: link.ends))
    )


def _require_sorted(kind: str, keys: Sequence[tuple[str, ...]]) -> None:
    for before, after in pairwise(keys):
        if before == after:
            raise BadMembership(f"{kind} {'-'.join(after)}: found twice, allowed is once")
        if before > after:
            raise BadMembership(f"{kind} {'-'.join(after)}: found out of order, allowed are {kind}s sorted by name")


NOBODY = Membership()
