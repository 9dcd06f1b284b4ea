"""From the data in ZooKeeper to the overlay of one broker: the brokers that it knows, and its links. Pure.

  - An edge is linked with each routing broker that carries one of its bundles or stands by for it, to which it
    connects, and with every edge of its domain. It knows no other edges. In addition it has direct links with edges of
    other domains, while one of the two requests that, and connects.
  - A routing broker is linked with edges, and connects to none of them. Routing brokers are not linked with each other.
  - Other brokers have the links in their file.

Addresses of others come from their registration. If the file describes a link, its properties are used.
"""

from collections.abc import Mapping, Set

from overlane.coordination.records import BrokerRecord
from overlane.membership.endpoint import Endpoint
from overlane.membership.membership import NOBODY, Member, MemberLink, Membership, membership_of

NONE: Mapping[str, bool] = {}
LINK_FAILURE = 0.002
"""As that of a link in a file that does not say how often it fails."""


def membership_for(
    me: str,
    own: BrokerRecord,
    others: Mapping[str, BrokerRecord],
    carrying: Set[str],
    file: Membership = NOBODY,
    direct: Mapping[str, bool] = NONE,
) -> Membership:
    """`carrying`: the routing brokers that carry bundles of its clients, and their standbys. `direct`: edges with a
    direct link, and whether this broker dials them."""
    of_file = {link.ends: link for link in file.links}
    if own.role not in ("edge", "routing"):
        # Where others are reached is what they say themselves.
        members = [_member(one.name, others[one.name], one) if one.name in others else one for one in file.members]
        known = file.names()
        return membership_of([*members, *([] if me in known else [_member(me, own)])], file.links)
    found = {me: _member(me, own)}
    links = {}
    for name, record in others.items():
        if name == me or not _is_known(own, record):
            if name != me and name in direct and own.role == record.role == "edge":
                found[name] = _member(name, record, is_dialled=direct[name])
                ends = (me, name) if me < name else (name, me)
                links[ends] = MemberLink(ends=ends, failure=LINK_FAILURE, is_direct=True)
            continue
        found[name] = _member(name, record, is_dialled=own.role == "edge")
        if record.role != "routing" or name in carrying:
            ends = (me, name) if me < name else (name, me)
            links[ends] = of_file.get(ends, MemberLink(ends=ends, failure=LINK_FAILURE))
    return membership_of(found.values(), links.values())


def _is_known(own: BrokerRecord, other: BrokerRecord) -> bool:
    match own.role, other.role:
        case "edge", "routing":
            return True
        case "edge", "edge":
            return own.domain == other.domain
        case "routing", "edge":
            return True
        case _:
            return False


def _member(name: str, record: BrokerRecord, known: Member | None = None, *, is_dialled: bool = True) -> Member:
    return Member(
        name=name,
        addresses=tuple(map(endpoint_of, record.overlay)) if is_dialled else (),
        domain=record.domain,
        role=record.role,
        is_expected=known.is_expected if known is not None else False,
    )


def endpoint_of(address: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    return Endpoint(host.strip("[]"), int(port))
