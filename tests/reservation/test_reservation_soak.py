"""Random requests and faults: no link promises more than it has, promises are kept, and what is released is free."""

from collections.abc import Callable

import pytest
import test_reservation_stories as stories
from reservation_soak import CALM, Soak

from overlane.reservation import resv_state, soft_state
from overlane.reservation.agent import RsvpAgent
from overlane.reservation.link_ledger import LinkLedger, LinkTerms
from overlane.reservation.receivers import Receivers
from overlane.reservation.resv_process import ResvProcess
from overlane.reservation.resv_state import HopRequest, ResvTable
from overlane.reservation.senders import Senders
from overlane.sim.reservation_network import Weather

BAD = Weather(loss=0.1, repetition=0.1, overtaking=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_promises_are_kept_through_failures_and_restarts(seed: int) -> None:
    print(f"seed {seed}")
    assert Soak(seed, CALM).violations(60) == []


@pytest.mark.parametrize("seed", range(100, 104))
def test_promises_are_kept_with_lost_repeated_and_overtaken_messages(seed: int) -> None:
    print(f"seed {seed}")
    assert Soak(seed, BAD).violations(60) == []


def _admits_everything(ledger: LinkLedger, key: object, rate: float) -> bool:
    rates = ledger._rates
    ledger._promised += int(rate) - rates.get(key, 0)  # type: ignore[call-overload]
    rates[key] = int(rate)  # type: ignore[index]
    return True


def _keeps_everything(ledger: LinkLedger, terms: LinkTerms) -> list[object]:
    ledger.terms = terms
    return []


# What is broken, and how: the soak must notice each within a few seeds.
SABOTAGE: dict[str, tuple[object, str, Callable[..., object]]] = {
    "admission": (LinkLedger, "admit", _admits_everything),
    "confirmation": (ResvTable, "is_covered", lambda *_: True),
    "merging": (resv_state, "merged", lambda flowspecs: min(flowspecs, key=lambda one: one.rate)),
    "release": (LinkLedger, "release", lambda *_: None),
    "teardown": (ResvProcess, "_send_upstream_tear", lambda *_: None),
    "expiry": (soft_state.SoftState, "expiry", lambda *_: soft_state.NEVER),
    "refresh": (RsvpAgent, "_refresh", lambda *_: None),
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", SABOTAGE)
def test_the_soak_notices_a_rule_that_is_broken(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, broken = SABOTAGE[rule]
    monkeypatch.setattr(owner, name, broken)
    assert any(Soak(seed, BAD if seed % 2 else CALM).violations(40) for seed in range(8))


# Rules behind which there is another one, so that only a story tells whether they work.
STORIES: dict[str, tuple[object, str, object, Callable[[], None]]] = {
    "errors": (
        ResvProcess,
        "_send_error",
        lambda *_: None,
        stories.test_a_request_that_a_link_has_no_room_for_is_refused_with_the_link_and_what_is_left,
    ),
    "blockade": (
        HopRequest,
        "effective",
        property(lambda request: request.flowspec),
        stories.test_a_large_request_does_not_keep_a_small_one_from_being_admitted,
    ),
    "other paths": (Senders, "refused", lambda *_: False, stories.test_a_crowded_path_is_left_for_one_with_room),
    "dead links": (
        RsvpAgent,
        "_link_down",
        lambda *_: None,
        stories.test_a_subscriber_is_told_when_no_other_path_admits_it,
    ),
    "loss": (ResvProcess, "_judge", lambda *_: None, stories.test_a_subscriber_is_told_when_no_other_path_admits_it),
    "preemption": (
        LinkLedger,
        "change",
        _keeps_everything,
        stories.test_a_link_that_can_do_less_gives_up_the_latest_reservations,
    ),
    "answers": (
        Receivers,
        "next_deadline",
        lambda *_: None,
        stories.test_a_request_without_a_publisher_is_refused_when_its_time_has_passed,
    ),
}


@pytest.mark.parametrize("rule", STORIES)
def test_a_story_notices_a_rule_that_is_broken(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, broken, story = STORIES[rule]
    story()
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, KeyError)):
        story()
