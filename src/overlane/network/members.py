"""What a network file means: the membership that it describes, and the network as one broker takes it."""

from msgspec import structs

from overlane.membership.carrier import parse_carrier
from overlane.membership.membership import Direction, Emulated, Member, MemberLink, Membership, membership_of
from overlane.network.endpoints import overlay_endpoints
from overlane.network.schema import Back, Link, Network

BROKER_NAME = "{name}"


def members_of(network: Network, *, is_emulated: bool = False) -> Membership:
    """`is_emulated`: all links are emulated as the file describes them, even without `emulate`."""
    where = overlay_endpoints(network)
    absent = network.absent_at_start()
    return membership_of(
        (
            Member(
                name=broker.name,
                addresses=(where[broker.name],) if broker.reach is None else broker.reach,
                domain=broker.domain,
                role=broker.role,
                is_expected=broker.name not in absent,
            )
            for broker in network.brokers
        ),
        (_link(link, is_emulated) for link in network.links),
    )


def of_broker(network: Network, name: str) -> Network:
    """The network as this broker takes it: `{name}` in the paths of the certificate and the key is its name."""
    security = network.security
    own = {
        field: path.replace(BROKER_NAME, name)
        for field, path in (("certificate", security.certificate), ("key", security.key))
        if path is not None
    }
    replaced: Network = structs.replace(network, security=structs.replace(security, **own))
    return replaced


def _link(link: Link, is_emulated: bool) -> MemberLink:
    first, second = sorted(link.ends)
    return MemberLink(
        ends=(first, second),
        there=_direction(link, first, is_emulated),
        back=_direction(link, second, is_emulated),
        failure=link.failure,
        has_datagrams=link.transport == "datagram",
        carrier=None if link.carrier is None else parse_carrier(link.carrier),
        is_encrypted=link.encrypted,
        dscp=link.dscp,
    )


def _direction(link: Link, sender: str, is_emulated: bool) -> Direction:
    own = link.from_end(sender)
    return Direction(queue_bytes=own.queue_bytes, rate_bps=own.rate_bps, emulated=_emulated(link, own, is_emulated))


def _emulated(link: Link, own: Link | Back, is_emulated: bool) -> Emulated | None:
    itself = _as_emulated(link)
    if link.emulate is None:
        return _as_emulated(own) if is_emulated else None
    # As the link itself is, which may not be the same in this direction.
    return _as_emulated(own) if link.emulate == itself else link.emulate


def _as_emulated(described: Link | Back) -> Emulated:
    return Emulated(
        latency_ns=described.latency_ns,
        jitter_ns=described.jitter_ns,
        loss=described.loss,
        rate_bps=described.rate_bps,
    )
