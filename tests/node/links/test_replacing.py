"""Which of two connections with a neighbour stays."""

from dataclasses import dataclass, replace

import pytest

from overlane.core.units import MS, Nanos
from overlane.node.links.dialling.replacing import SAME_MOMENT, replaces


@dataclass(frozen=True)
class Connection:
    was_dialled_by_us: bool
    opened_ns: Nanos = 0
    peer: str = "m"
    instance: int = 7
    is_broken: bool = False


OURS, THEIRS = Connection(was_dialled_by_us=True), Connection(was_dialled_by_us=False)
LATER = SAME_MOMENT
AT_ONCE = SAME_MOMENT - MS


def later(one: Connection, by_ns: Nanos = LATER) -> Connection:
    return replace(one, opened_ns=by_ns)


@pytest.mark.parametrize(
    ("me", "link", "before", "expected"),
    [
        # Dialled at the same moment from both ends: that of the lesser name stays.
        ("a", later(OURS, AT_ONCE), THEIRS, True),
        ("a", later(THEIRS, AT_ONCE), OURS, False),
        ("z", later(OURS, AT_ONCE), THEIRS, False),
        ("z", later(THEIRS, AT_ONCE), OURS, True),
        # Ours, while there is one that works: it is not dropped.
        ("a", later(OURS), THEIRS, False),
        ("a", later(OURS), OURS, False),
        # The same broker dials again later: it has no connection any more.
        ("a", later(THEIRS), OURS, True),
        ("a", later(THEIRS), THEIRS, True),
        ("a", later(THEIRS, AT_ONCE), THEIRS, False),
        # A broker that does not say which instance it is.
        ("a", later(replace(THEIRS, instance=0)), replace(OURS, instance=0), False),
        # One that is broken makes room for any.
        ("a", later(OURS), replace(OURS, is_broken=True), True),
    ],
)
def test_which_connection_stays(me: str, link: Connection, before: Connection, expected: bool) -> None:
    assert replaces(me, link, before) is expected
