"""Direct links between edges: opened while a deadline is at risk through the routing tier, closed with hysteresis."""

import pytest

from overlane.core.routing.direct_links import (
    BARRED_FOR,
    BARRED_FOR_MAX,
    LINKS_MAX,
    NOT_QUICKER,
    NOT_UP,
    OPEN_WITHIN,
    RISK_FOR,
    SAFE_FOR,
    Barred,
    DirectLinks,
    DirectLinkState,
    Traffic,
)
from overlane.core.units import MS, NEVER, SECOND, Nanos

DEADLINE = 50 * MS
LATE = Traffic(DEADLINE, 80 * MS)
SHORT = Traffic(DEADLINE, 45 * MS)
"""In time, but not by enough to be safe."""
SAFE = Traffic(DEADLINE, 40 * MS)
LATE_AND_UP = LATE._replace(direct_ns=20 * MS)


def opened() -> tuple[DirectLinks, Nanos]:
    """With an open link to `e2`, and the time."""
    links = DirectLinks()
    links.review({"e2": LATE}, 0)
    links.review({"e2": LATE}, RISK_FOR)
    assert links.wanted() == ("e2",)
    links.review({"e2": LATE_AND_UP}, 1 * SECOND)
    assert links.state_of("e2") is DirectLinkState.OPEN
    return links, 1 * SECOND


@pytest.mark.parametrize(
    ("before", "then", "is_wanted"),
    [
        (LATE, LATE, True),
        (Traffic(DEADLINE, NEVER), Traffic(DEADLINE, NEVER), True),
        (SHORT, SHORT, False),
        (SAFE, SAFE, False),
        (LATE, SHORT, False),
        (SHORT, LATE, False),
    ],
)
def test_a_link_is_wanted_when_the_tier_has_been_too_slow_for_a_while(
    before: Traffic, then: Traffic, is_wanted: bool
) -> None:
    links = DirectLinks()
    assert links.review({"e2": before}, 0) == []
    assert links.wanted() == ()
    assert links.review({"e2": then}, RISK_FOR) == []
    assert links.wanted() == (("e2",) if is_wanted else ())


def test_a_risk_that_ends_begins_anew() -> None:
    links = DirectLinks()
    links.review({"e2": LATE}, 0)
    links.review({"e2": SAFE}, RISK_FOR - 1)
    links.review({"e2": LATE}, RISK_FOR)
    assert links.wanted() == ()
    assert links.wake_at == 2 * RISK_FOR
    links.review({"e2": LATE}, 2 * RISK_FOR)
    assert links.wanted() == ("e2",)


@pytest.mark.parametrize("calm", [{"e2": SAFE._replace(direct_ns=20 * MS)}, {}])
def test_an_open_link_is_closed_when_it_has_not_been_needed_for_long_enough(calm: dict[str, Traffic]) -> None:
    links, now = opened()
    links.review(calm, now)
    assert links.wake_at == now + SAFE_FOR
    assert links.review(calm, now + SAFE_FOR - 1) == []
    assert links.wanted() == ("e2",)
    assert links.review(calm, now + SAFE_FOR) == []
    assert links.wanted() == ()
    assert links.state_of("e2") is DirectLinkState.IDLE


def test_a_link_stays_while_the_tier_is_neither_too_slow_nor_safe() -> None:
    links, now = opened()
    for second in range(200):
        near = SAFE if second % 29 == 0 else SHORT
        assert links.review({"e2": near._replace(direct_ns=20 * MS)}, now + second * SECOND) == []
        assert links.wanted() == ("e2",)


def test_an_edge_that_cannot_be_dialled_is_told_once_and_tried_again_less_and_less_often() -> None:
    links = DirectLinks()
    links.review({"e2": LATE}, 0)
    now = RISK_FOR
    for pause in (BARRED_FOR, 2 * BARRED_FOR, 4 * BARRED_FOR):
        assert links.review({"e2": LATE}, now) == []
        assert links.wanted() == ("e2",)
        assert links.wake_at == now + OPEN_WITHIN
        now += OPEN_WITHIN
        assert links.review({"e2": LATE}, now) == [Barred("e2", NOT_UP)]
        assert links.wanted() == ()
        assert links.review({"e2": LATE}, now + pause - 1) == []
        assert links.wanted() == ()
        now += pause
        links.review({"e2": LATE}, now)
        now += RISK_FOR


def test_pauses_are_bounded() -> None:
    links = DirectLinks()
    now: Nanos = 0
    for _ in range(30):
        links.review({"e2": LATE}, now)
        links.review({"e2": LATE}, now := now + RISK_FOR)
        assert links.wanted() == ("e2",)
        links.review({"e2": LATE}, now := now + OPEN_WITHIN)
        now += BARRED_FOR_MAX


def test_a_link_that_is_not_up_yet_is_not_wanted_any_more_when_nothing_is_sent() -> None:
    links = DirectLinks()
    links.review({"e2": LATE}, 0)
    links.review({"e2": LATE}, RISK_FOR)
    assert links.review({}, RISK_FOR + 1) == []
    assert links.wanted() == ()


def test_a_link_that_is_no_quicker_than_the_tier_is_given_up() -> None:
    links, now = opened()
    slow = {"e2": LATE._replace(direct_ns=90 * MS)}
    assert links.review(slow, now) == []
    assert links.review(slow, now + SAFE_FOR) == [Barred("e2", NOT_QUICKER)]
    assert links.wanted() == ()


def test_a_link_that_goes_down_is_wanted_again_and_then_given_up() -> None:
    links, now = opened()
    assert links.review({"e2": LATE}, now) == []
    assert links.state_of("e2") is DirectLinkState.WANTED
    assert links.review({"e2": LATE}, now + OPEN_WITHIN) == [Barred("e2", NOT_UP)]


def test_the_most_urgent_come_first_and_take_no_place_from_others() -> None:
    links = DirectLinks()
    many = {f"e{number:02}": Traffic(DEADLINE, (100 + number) * MS) for number in range(LINKS_MAX + 3)}
    links.review(many, 0)
    links.review(many, RISK_FOR)
    first = links.wanted()
    assert first == tuple(sorted(many)[3:])
    more = {**many, "urgent": Traffic(DEADLINE, 10 * SECOND)}
    links.review(more, 1 * SECOND)
    links.review(more, 1 * SECOND + RISK_FOR)
    assert links.wanted() == first
    del more["e10"]
    links.review(more, 2 * SECOND)
    assert links.wanted() == (*(name for name in first if name != "e10"), "urgent")
