"""The difference between two memberships, and how it is applied.

`apply_change(old, diff(old, new)) == new`. Applied to another membership than `old`, a change alters only what it
names: so the changes of one source (a file) do not undo those of another (an operator).
"""

from dataclasses import dataclass

from overlane.membership.membership import Ends, Member, MemberLink, Membership, membership_of


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """All sorted by name."""

    joined: tuple[Member, ...] = ()
    left: tuple[str, ...] = ()
    """Their links are gone too."""
    moved: tuple[Member, ...] = ()
    """Members with other addresses than before, as they are now."""
    altered: tuple[Member, ...] = ()
    """Members that differ in anything else, as they are now."""
    linked: tuple[MemberLink, ...] = ()
    unlinked: tuple[Ends, ...] = ()
    relinked: tuple[MemberLink, ...] = ()
    """Links that have changed, as they are now."""

    def __bool__(self) -> bool:
        return self != NO_CHANGE


NO_CHANGE = MembershipChange()


def diff(old: Membership, new: Membership) -> MembershipChange:
    before = {member.name: member for member in old.members}
    after = {member.name: member for member in new.members}
    links_before = {link.ends: link for link in old.links}
    links_after = {link.ends: link for link in new.links}
    changed = [one for one in new.members if one.name in before and before[one.name] != one]
    return MembershipChange(
        joined=tuple(one for one in new.members if one.name not in before),
        left=tuple(name for name in before if name not in after),
        moved=tuple(one for one in changed if before[one.name].addresses != one.addresses),
        altered=tuple(one for one in changed if before[one.name].addresses == one.addresses),
        linked=tuple(link for link in new.links if link.ends not in links_before),
        unlinked=tuple(ends for ends in links_before if ends not in links_after),
        relinked=tuple(link for link in new.links if link.ends in links_before and links_before[link.ends] != link),
    )


def apply_change(membership: Membership, change: MembershipChange) -> Membership:
    """BadMembership if the change links a member that is not there."""
    members = {member.name: member for member in membership.members}
    links = {link.ends: link for link in membership.links}
    for member in (*change.joined, *change.moved, *change.altered):
        members[member.name] = member
    for name in change.left:
        members.pop(name, None)
    for ends in change.unlinked:
        links.pop(ends, None)
    for link in (*change.linked, *change.relinked):
        links[link.ends] = link
    gone = set(change.left)
    return membership_of(members.values(), [link for link in links.values() if not gone.intersection(link.ends)])
