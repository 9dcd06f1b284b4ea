"""Which brokers of a domain have failed, by the votes of the others."""

import pytest

from overlane.core.units import SECOND
from overlane.items import votes
from overlane.items.votes import GONE, RETURN, FailureVotes, accused

FOUR = frozenset("abcd")


def of(**cannot_reach: str) -> dict[str, frozenset[str]]:
    return {name: frozenset(others) for name, others in cannot_reach.items()}


@pytest.mark.parametrize(
    ("told", "failed"),
    [
        (of(a="", b="", c="", d=""), ""),
        (of(a="d", b="d", c="d", d=""), "d"),
        (of(a="d", b="d", c="", d="ab"), "d"),
        # One link between two brokers is the failure of neither.
        (of(a="b", b="a", c="", d=""), ""),
        # Cut off from all others, with a connection to ZooKeeper: its votes against all of them do not count.
        (of(a="d", b="d", c="d", d="abc"), "d"),
        # Two are gone.
        (of(a="cd", b="cd", c="", d=""), "cd"),
        # A registration that has ended needs one vote, not two.
        (of(a="d", b="", c=""), "d"),
        (of(a="", b="", c=""), ""),
    ],
)
def test_a_broker_has_failed_when_others_say_so(told: dict[str, frozenset[str]], failed: str) -> None:
    assert accused(told, FOUR, "a") == frozenset(failed)


def test_of_two_brokers_that_lose_each_other_the_one_that_decides_stays() -> None:
    assert accused(of(a="b", b="a"), frozenset("ab"), "a") == {"b"}
    assert accused(of(a="b", b="a"), frozenset("ab"), "b") == {"a"}


def test_a_lost_registration_alone_is_a_failure_only_after_a_while() -> None:
    watch = FailureVotes()
    assert watch.failed(of(a="", b="", c=""), FOUR, "a", 0) == (frozenset(), GONE)
    assert watch.failed(of(a="", b="", c=""), FOUR, "a", GONE - 1)[0] == frozenset()
    assert watch.failed(of(a="", b="", c=""), FOUR, "a", GONE)[0] == {"d"}


def test_a_broker_returns_after_a_rest_that_doubles_with_every_relapse() -> None:
    watch, good, bad = FailureVotes(), of(a="", b="", c="", d=""), of(a="d", b="d", c="", d="")
    now = 0
    for relapse in range(4):
        assert watch.failed(bad, FOUR, "a", now)[0] == {"d"}
        rest = min(RETURN << relapse, votes.RETURN_MAX)
        assert watch.failed(good, FOUR, "a", now + 1) == (frozenset("d"), now + 1 + rest)
        assert watch.failed(good, FOUR, "a", now + rest)[0] == {"d"}
        assert watch.failed(good, FOUR, "a", now + 1 + rest)[0] == frozenset()
        now += rest + SECOND


def test_a_blip_while_it_returns_begins_the_rest_anew() -> None:
    watch, good, bad = FailureVotes(), of(a="", b="", c="", d=""), of(a="d", b="d", c="", d="")
    watch.failed(bad, FOUR, "a", 0)
    watch.failed(good, FOUR, "a", 1)
    watch.failed(bad, FOUR, "a", RETURN - 1)
    assert watch.failed(good, FOUR, "a", RETURN + 1)[0] == {"d"}
    assert watch.failed(good, FOUR, "a", 2 * RETURN + 1)[0] == frozenset()
