"""Random allocation problems, and the plain arithmetic the solvers are compared with."""

from itertools import product
from math import erfc, sqrt

import numpy as np

from overlane.planning.allocation import BrokerCapacity, Item, Problem
from overlane.planning.allocation.model import FloatArray


def random_covariance(rng: np.random.Generator, deviation: FloatArray, samples: int) -> FloatArray:
    """A covariance of the given deviations, estimated from random samples: singular when they are few."""
    count = len(deviation)
    walk = rng.normal(size=(count, samples)) + rng.normal(size=(1, samples)) * rng.uniform(-0.5, 1.5)
    raw = walk @ walk.T
    scale = deviation / np.sqrt(np.diag(raw))
    covariance: FloatArray = raw * np.outer(scale, scale)
    return covariance


def random_problem(
    seed: int, items: int, brokers: int, use: float | None = None, risk_max: float = 0.2, topics: bool = False
) -> Problem:
    """Items of different sizes and variation on unequal brokers; `use` is the mean load as a share of all capacity."""
    rng = np.random.default_rng(seed)
    mean = rng.uniform(20, 400, items)
    covariance = random_covariance(rng, mean * rng.uniform(0.05, 0.5, items), int(rng.integers(2, 3 * items + 2)))
    capacity = rng.uniform(0.5, 1.5, brokers)
    if rng.random() < 0.3:
        capacity[:] = 1.0
    load = rng.uniform(0.4, 0.9) if use is None else use
    capacity *= float(mean.sum()) / load / float(capacity.sum())
    free_prices = rng.random() < 0.4
    penalty = rng.uniform(0, 300, items)
    return Problem.of(
        [
            Item(
                f"item{index}",
                float(rate),
                topics=int(rng.integers(1, 4)) if topics else 1,
                reward=float(rng.uniform(-10, 500)) if free_prices else None,
                penalty=float(penalty[index]) if free_prices else None,
            )
            for index, rate in enumerate(mean)
        ],
        covariance,
        [
            BrokerCapacity(
                f"broker{index}",
                float(size),
                int(rng.integers(items // brokers, items * 2)) if topics else None,
            )
            for index, size in enumerate(capacity)
        ],
        risk_max,
    )


def plain_risk(problem: Problem, held: list[int], broker: int, others: tuple[int, ...] = ()) -> float:
    """Pr(V > C) by the formula; `others` load the broker too."""
    carried = [*held, *others]
    mean = float(problem.mean[carried].sum())
    variance = float(problem.covariance[np.ix_(carried, carried)].sum())
    capacity = problem.brokers[broker].capacity
    if variance <= 0:
        return float(mean > capacity)
    return 0.5 * erfc((capacity - mean) / sqrt(variance) / sqrt(2))


def plain_utility(problem: Problem, places: tuple[int, ...]) -> tuple[float, list[float]]:
    """Utility and risks of an allocation, by the formula."""
    utility, risks = 0.0, []
    for broker in range(len(problem.brokers)):
        held = [item for item, place in enumerate(places) if place == broker]
        risk = plain_risk(problem, held, broker)
        utility += float(problem.reward[held].sum() - problem.penalty[held].sum() * risk)
        risks.append(risk)
    return utility, risks


def topics_fit(problem: Problem, places: tuple[int, ...]) -> bool:
    held = np.bincount(places, weights=problem.topics, minlength=len(problem.brokers))
    return bool((held <= problem.topics_max).all())


def brute_force(problem: Problem) -> tuple[float | None, float | None]:
    """The best utility of a feasible allocation, and the least maximum risk under the topic limits alone."""
    best: float | None = None
    calmest: float | None = None
    for places in product(range(len(problem.brokers)), repeat=len(problem.items)):
        if not topics_fit(problem, places):
            continue
        utility, risks = plain_utility(problem, places)
        highest = max(risks)
        calmest = highest if calmest is None else min(calmest, highest)
        if highest < problem.risk_max and (best is None or utility > best):
            best = utility
    return best, calmest


def places_of(problem: Problem, primary: dict[str, str]) -> tuple[int, ...]:
    return tuple(problem.places(primary, "primary").tolist())
