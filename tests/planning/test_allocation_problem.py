"""What is refused as an allocation problem, and by which name."""

from dataclasses import replace

import numpy as np
import pytest

from overlane.planning.allocation import BrokerCapacity, Item, Problem
from overlane.planning.problem import BadProblem

A, B = Item("a", 10), Item("b", 20)
X = BrokerCapacity("x", 100)
GOOD = [[4.0, 1.0], [1.0, 9.0]]


@pytest.mark.parametrize(
    ("items", "covariance", "brokers", "risk_max", "field_name"),
    [
        ([], [], [X], 0.02, "items"),
        ([A, replace(B, name="a")], GOOD, [X], 0.02, "items[1].name"),
        ([A, replace(B, name="")], GOOD, [X], 0.02, "items[1].name"),
        ([A, replace(B, mean=-1)], GOOD, [X], 0.02, "items[1].mean"),
        ([A, replace(B, mean=float("nan"))], GOOD, [X], 0.02, "items[1].mean"),
        ([A, replace(B, topics=0)], GOOD, [X], 0.02, "items[1].topics"),
        ([A, replace(B, penalty=-1)], GOOD, [X], 0.02, "items[1].penalty"),
        ([A, replace(B, reward=float("inf"))], GOOD, [X], 0.02, "items[1].reward"),
        ([A, B], GOOD, [], 0.02, "brokers"),
        ([A, B], GOOD, [X, X], 0.02, "brokers[1].name"),
        ([A, B], GOOD, [BrokerCapacity("x", 0)], 0.02, "brokers[0].capacity"),
        ([A, B], GOOD, [BrokerCapacity("x", 1, -1)], 0.02, "brokers[0].topics_max"),
        ([A, B], GOOD, [X], 0.0, "risk_max"),
        ([A, B], GOOD, [X], 1.5, "risk_max"),
        ([A, B], GOOD[:1], [X], 0.02, "covariance"),
        ([A, B], [[4.0, 1.0], [1.0]], [X], 0.02, "covariance[1]"),
        ([A, B], [[4.0, 1.0], [2.0, 9.0]], [X], 0.02, "covariance[0][1]"),
        ([A, B], [[4.0, 1.0], [1.0, -9.0]], [X], 0.02, "covariance[1][1]"),
        ([A, B], [[4.0, 7.0], [7.0, 9.0]], [X], 0.02, "covariance"),
        ([A, B], [[4.0, float("nan")], [1.0, 9.0]], [X], 0.02, "covariance"),
    ],
)
def test_a_bad_problem_is_refused_with_its_field(
    items: list[Item], covariance: list[list[float]], brokers: list[BrokerCapacity], risk_max: float, field_name: str
) -> None:
    with pytest.raises(BadProblem) as refused:
        Problem.of(items, covariance, brokers, risk_max)
    assert refused.value.field_name == field_name


def test_rounding_of_a_sampled_covariance_is_forgiven() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(30, 5))  # five samples of thirty items: singular, with eigenvalues about -1e-16
    covariance = samples @ samples.T
    covariance[0, 1] *= 1 + 1e-13
    problem = Problem.of([Item(f"i{n}", 1) for n in range(30)], covariance, [X])
    assert (problem.covariance == problem.covariance.T).all()


def test_primaries_must_name_every_item_and_a_broker_each() -> None:
    problem = Problem.of([A, B], GOOD, [X])
    for primary, field_name in (
        ({"a": "x"}, "primary.b"),
        ({"a": "x", "b": "y"}, "primary.b"),
        ({"a": "x", "b": "x", "c": "x"}, "primary"),
    ):
        with pytest.raises(BadProblem) as refused:
            problem.places(primary, "primary")
        assert refused.value.field_name == field_name
