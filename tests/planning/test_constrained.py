"""Paths that meet several requirements at once: against trying everything, and what the command prints."""

import json
from fractions import Fraction
from itertools import combinations, pairwise, product
from random import Random
from typing import Any

import pytest
from path_oracle import random_network
from test_paths_command import DIAMOND, plan

from overlane.planning.constrained import SEARCH, Chosen, Wanted, choose, evaluate
from overlane.planning.network import Network
from overlane.planning.shortest import Path


def simple_paths(network: Network, source: int, destination: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    pending: list[tuple[int, ...]] = [(source,)]
    while pending:
        path = pending.pop()
        if path[-1] == destination:
            found.append(path)
        else:
            pending += [(*path, end) for end, _ in network.steps[path[-1]] if end not in path]
    return found


def any_works(parts: list[dict[object, float]]) -> float:
    """The probability that all elements of at least one part work, summed over all states of all elements."""
    elements = sorted({one for part in parts for one in part}, key=repr)
    certain = {one: up for part in parts for one, up in part.items()}
    total = Fraction(0)
    for state in product((True, False), repeat=len(elements)):
        works = dict(zip(elements, state, strict=True))
        if any(all(works[one] for one in part) for part in parts):
            weight = Fraction(1)
            for one in elements:
                weight *= Fraction(certain[one]) if works[one] else 1 - Fraction(certain[one])
            total += weight
    return float(total)


def worth(network: Network, losses: dict[tuple[int, int], float], paths: list[tuple[int, ...]]) -> tuple[float, float]:
    passes: list[dict[object, float]] = [{link: 1 - losses[link] for link in pairwise(path)} for path in paths]
    ups: list[dict[object, float]] = [
        {
            **{broker: 1 - network.broker_failure[broker] for broker in path},
            **{frozenset(link): 1 - network.link_failure[min(link), max(link)] for link in pairwise(path)},
        }
        for path in paths
    ]
    return 1 - any_works(passes), any_works(ups)


def best_by_trying_everything(
    network: Network, losses: dict[tuple[int, int], float], ends: tuple[int, int], wanted: Wanted, n: int
) -> tuple[int, float, int, int] | None:
    """Misses, by how much, how many paths, their latency in sum; None if there is no path."""
    paths = simple_paths(network, *ends)
    in_time = [path for path in paths if wanted.deadline_ns is None or network.latency_ns(path) <= wanted.deadline_ns]
    if not in_time and paths:
        in_time = [min(paths, key=lambda path: (network.latency_ns(path), len(path), path))]
    keys = []
    for size in range(1, n + 1):
        for some in combinations(in_time, size):
            loss, up = worth(network, losses, list(some))
            missed = [by for by in (loss - wanted.loss_max, wanted.resiliency_min - up) if by > 1e-12]
            keys.append((len(missed), round(sum(missed), 9), size, sum(map(network.latency_ns, some))))
    return min(keys, default=None)


@pytest.mark.parametrize("seed", range(40))
def test_the_choice_is_the_best_of_all_that_can_be_tried(seed: int) -> None:
    random = Random(seed)
    network = random_network(seed, 5)
    losses = {
        (start, end): random.choice([0.0, 0.01, 0.05, 0.3])
        for start, steps in enumerate(network.steps)
        for end, _ in steps
    }
    ends = 0, len(network) - 1
    longest = max((network.latency_ns(path) for path in simple_paths(network, *ends)), default=1)
    wanted = Wanted(
        random.choice([None, longest, longest * 2 // 3, 0]),
        random.choice([1.0, 0.1, 0.02]),
        random.choice([0.0, 0.5, 0.9, 0.99]),
    )
    n = random.choice([1, 2])
    if len(simple_paths(network, *ends)) > SEARCH:
        pytest.skip("more paths than are searched")
    expected = best_by_trying_everything(network, losses, ends, wanted, n)
    found = choose(network, losses, *ends, wanted, n)
    if expected is None:
        assert found.paths == ()
        return
    count, amount = found.misses(wanted)
    key = count, round(amount, 9), len(found.paths), sum(path.latency_ns for path in found.paths)
    assert key == pytest.approx(expected, abs=2e-9)
    assert found.exact
    loss, up = worth(network, losses, [path.brokers for path in found.paths])
    assert (found.loss, found.resiliency) == pytest.approx((loss, up), abs=1e-9)
    same = evaluate(network, losses, found.paths)
    # A link in both directions has one loss there, the greater.
    if len({frozenset(link) for path in found.paths for link in pairwise(path.brokers)}) == len(
        {link for path in found.paths for link in pairwise(path.brokers)}
    ):
        assert (same.loss, same.resiliency) == pytest.approx((loss, up), abs=1e-9)


def test_the_misses_of_a_set_are_counted_and_summed() -> None:
    chosen = Chosen((Path((0, 1), 5),), 0.2, 0.9)
    assert chosen.misses(Wanted()) == (0, 0)
    count, amount = chosen.misses(Wanted(None, 0.1, 0.95))
    assert (count, round(amount, 9)) == (2, 0.15)


# The command

FIELDS: dict[str, Any] = {
    **DIAMOND,
    "brokers": {
        name: {"failure": 0.0, "domain": domain}
        for name, domain in {"A": "home", "B": "east", "C": "west", "D": "home"}.items()
    },
    "links": [
        {"ends": ["A", "B"], "latency_ms": 10, "loss": 0.1, "encrypted": True},
        {"ends": ["B", "D"], "latency_ms": 10, "failure": 0.2},
        {"ends": ["A", "C"], "latency_ms": 15, "encrypted": True},
        {"ends": ["D", "C"], "latency_ms": 15, "failure": 0.1, "encrypted": True},
    ],
}


@pytest.mark.parametrize(
    ("asked", "paths"),
    [
        ({"paths": 1}, [["A", "B", "D"]]),
        ({"paths": 1, "loss_max": 0.05}, [["A", "C", "D"]]),
        ({"paths": 1, "resiliency_min": 0.85}, [["A", "C", "D"]]),
        ({"paths": 2, "resiliency_min": 0.95}, [["A", "B", "D"], ["A", "C", "D"]]),
        ({"encrypted": True}, [["A", "C", "D"]]),
        ({"avoid": ["domain:east"]}, [["A", "C", "D"]]),
        ({"through": ["broker:B"]}, [["A", "B", "D"]]),
    ],
)
def test_the_command_takes_the_fields_of_topics(asked: dict[str, Any], paths: list[list[str]]) -> None:
    if asked == {"paths": 1}:
        asked = {"paths": 1, "loss_max": 0.5}
    done = plan("paths", {**FIELDS, **asked}, "--json")
    assert (done.exit_code, json.loads(done.stdout)["paths"]) == (0, paths)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"encrypted": True, "avoid": ["broker:C"]}, "no path from A to D that encrypted and avoid allow"),
        ({"avoid": ["broker:B", "domain:west"]}, "no path from A to D that avoid allow"),
        ({"paths": 1, "loss_max": 0.01, "avoid": ["broker:C"]}, "loss_max (the nearest paths lose 0.1)"),
        ({"resiliency_min": 0.999}, "resiliency_min (the nearest paths have 0.98)"),
        ({"deadline_ms": 5, "loss_max": 0.5}, "deadline_ms (the quickest allowed path takes 20 ms)"),
    ],
)
def test_the_command_names_the_requirement_that_cannot_be_met(asked: dict[str, Any], words: str) -> None:
    done = plan("paths", {**FIELDS, **asked})
    assert done.exit_code == 3
    assert words in done.output


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"avoid": ["broker:Z"]}, "avoid[0]: got 'broker:Z'; expected \"broker:NAME\""),
        ({"loss_max": 2}, "loss_max: got 2; expected a probability from 0 to 1"),
    ],
)
def test_a_wrong_requirement_is_refused(asked: dict[str, Any], words: str) -> None:
    done = plan("paths", {**FIELDS, **asked})
    assert done.exit_code == 2
    assert words in done.output
