"""When topics are mapped to shared routes, and what becomes of the mapping."""

import asyncio

from overlane.core.config import RouteDemand
from overlane.core.events import SetChannels
from overlane.core.qos import QosClass
from overlane.core.units import SECOND
from overlane.node.channels.solver import solve_apart
from overlane.planning.channels import Advertisement, plan_channels
from overlane.turn.channel_review import UNICAST_WEIGHT, ChannelReview, MappingProblem, Ways, cost_share

QOS = QosClass(is_shared=True)
URGENT = QosClass(deadline_ns=SECOND, is_shared=True)
SUBSCRIBERS = ("ADE", "BC", "AE", "BCEF", "DE", "BCF")
RATES_BPS = (800, 80, 500, 20, 1600, 100)
"""Of the subscribers above: Table 2 of the IndiQoS report, first set. Two topics go to D and E."""


def demand(seconds: int, rates_bps: tuple[int, ...] = RATES_BPS, qos: QosClass = QOS) -> list[RouteDemand]:
    """What has been sent after so many seconds."""
    return [
        RouteDemand(qos, tuple(names), rate_bps * seconds // 8)
        for names, rate_bps in zip(SUBSCRIBERS, rates_bps, strict=True)
    ]


def problem_of(review: ChannelReview, ways: Ways) -> MappingProblem:
    assert review.look(demand(0), ways, 100 * SECOND) == []
    (problem,) = review.look(demand(10), ways, 110 * SECOND)
    return problem


def solved(review: ChannelReview, problem: MappingProblem, ways: Ways) -> SetChannels | None:
    plan = plan_channels(problem.advertisements, problem.channels, UNICAST_WEIGHT)
    return review.solved(problem, plan.channels, ways)


def test_the_rates_of_all_sets_of_several_brokers_are_the_problem() -> None:
    problem = problem_of(ChannelReview(2), {})
    sets = tuple(sorted(tuple(names) for names in SUBSCRIBERS))
    rates_bps = {tuple(names): rate for names, rate in zip(SUBSCRIBERS, RATES_BPS, strict=True)}
    advertisements = tuple(Advertisement(str(place), rates_bps[one], one) for place, one in enumerate(sets))
    assert problem == MappingProblem(QOS, sets, advertisements, 2)


def test_the_mapping_is_the_optimum_for_the_rates_that_were_measured() -> None:
    review = ChannelReview(2)
    event = solved(review, problem_of(review, {}), {})
    assert event is not None
    assert review.costs_bps[QOS] == (520, 520)
    assert event.plan == {
        (QOS, ("A", "D", "E")): (("A", "D", "E"),),
        (QOS, ("A", "E")): (("A", "D", "E"),),
        (QOS, ("D", "E")): (("D", "E"),),
        (QOS, ("B", "C", "E", "F")): (("D", "E"), ("B",), ("C",), ("F",)),
        (QOS, ("B", "C")): (("B",), ("C",)),
        (QOS, ("B", "C", "F")): (("B",), ("C",), ("F",)),
    }


def test_a_class_with_enough_routes_has_no_problem() -> None:
    review = ChannelReview(6)
    review.look(demand(0), {}, 100 * SECOND)
    assert review.look(demand(10), {}, 110 * SECOND) == []


def test_it_is_solved_again_when_rates_have_changed_and_not_before() -> None:
    review = ChannelReview(2)
    event = solved(review, problem_of(review, {}), {})
    assert event is not None
    assert review.look(demand(20), event.plan, 120 * SECOND) == []
    others = tuple(
        before.sent_bytes + rate_bps * 10 // 8
        for before, rate_bps in zip(demand(20), (20, 3000, 20, 500, 160, 25), strict=True)
    )
    now = [RouteDemand(QOS, tuple(names), sent) for names, sent in zip(SUBSCRIBERS, others, strict=True)]
    (problem,) = review.look(now, event.plan, 130 * SECOND)
    assert cost_share(problem, event.plan) > 0.1


def test_a_mapping_that_is_hardly_better_is_not_taken() -> None:
    review = ChannelReview(2)
    first = problem_of(review, {})
    event = solved(review, first, {})
    assert event is not None
    assert solved(review, first, event.plan) is None


def test_classes_are_mapped_apart_and_told_together() -> None:
    review = ChannelReview(2)
    review.look([*demand(0), *demand(0, qos=URGENT)], {}, 100 * SECOND)
    problems = review.look([*demand(10), *demand(10, qos=URGENT)], {}, 110 * SECOND)
    assert {one.qos for one in problems} == {QOS, URGENT}
    events = [solved(review, one, {}) for one in problems]
    assert events[1] is not None
    assert {qos for qos, _ in events[1].plan} == {QOS, URGENT}


def test_the_solver_in_a_process_of_its_own_answers_the_same() -> None:
    problem = problem_of(ChannelReview(2), {})
    here = plan_channels(problem.advertisements, problem.channels, UNICAST_WEIGHT).channels
    assert asyncio.run(solve_apart(problem)) == here
