"""The ledger finds what it is there to find."""

import pytest
from faithful import FaithfulPublisher, FaithfulSubscriber
from ledger import Ledger, balance, missing


def books(
    heard: list[tuple[int, int]], qos: int = 2, granted: int = 2, resent: set[int] | None = None
) -> tuple[list[FaithfulPublisher], list[FaithfulSubscriber]]:
    """A publisher that had 0, 1 and 2 acknowledged, and 3 not; and what a subscriber heard of it."""
    publisher = FaithfulPublisher(0, "p", 5, "t", qos)
    publisher.published, publisher.acknowledged, publisher.resent = 4, {0, 1, 2}, resent or set()
    subscriber = FaithfulSubscriber(0, "s", 5, "#", granted)
    subscriber.heard["t"] = heard
    return [publisher], [subscriber]


def found(ledger: Ledger) -> dict[str, int]:
    wrong = {
        "lost": ledger.lost,
        "repeated": ledger.repeated,
        "reordered": ledger.reordered,
        "invented": ledger.invented,
    }
    return {what: len(where) for what, where in wrong.items() if where}


ALL = [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize(
    ("heard", "wrong"),
    [
        (ALL, {}),
        ([*ALL, (3, 1)], {}),
        (ALL[:2], {"lost": 1}),
        ([], {"lost": 3}),
        ([*ALL, (1, 2)], {"repeated": 1}),
        ([(0, 1), (2, 1), (1, 1)], {"reordered": 1}),
        ([*ALL, (4, 1)], {"invented": 1}),
    ],
)
def test_what_is_wrong_with_qos_2_is_found(heard: list[tuple[int, int]], wrong: dict[str, int]) -> None:
    ledger = balance(*books(heard))
    assert found(ledger) == wrong
    assert ledger.is_clean == (not wrong)


def test_qos_1_may_repeat_what_was_sent_again_and_what_was_not_known_to_be_acknowledged() -> None:
    ledger = balance(*books([*ALL, (1, 1), (2, 2)], qos=1, granted=1, resent={1}))
    assert found(ledger) == {}
    assert ledger.allowed_repeats == 2


def test_nothing_else_may_be_repeated_by_qos_1() -> None:
    assert found(balance(*books([*ALL, (1, 1)], qos=1, granted=1))) == {"repeated": 1}
    # The publisher is of QoS 2: what it resends must not be taken for new.
    assert found(balance(*books([*ALL, (1, 1)], qos=2, granted=1, resent={1}))) == {"repeated": 1}


def test_what_is_missing_is_what_was_acknowledged_and_not_heard_yet() -> None:
    assert missing(*books(ALL[:1])) == 2
    assert missing(*books(ALL)) == 0
