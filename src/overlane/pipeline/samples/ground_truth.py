"""The ground truth of a sample: an artificial domain whose properties the pipeline should find.

- Load: a few steady topics whose rates are normal with a given covariance (three common causes and an own part), and
  many quiet topics that are active in a given share of the seconds. The load peaks from 9:00 to 11:00 and from 19:00 to
  21:00; at other times it is a given share of the peak.
- Reliability: brokers and links fail and are repaired at random, each with a given probability of being down. Three
  links share a conduit and fail together.
- Interest: subscriptions are in `sample_interest`.
- Delay: the link used by most paths is slow for some hours, and in other hours the broker that forwards most of them.
  Both then miss the deadlines.
"""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from overlane.pipeline.units import HOUR_S

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PEAK_HOURS = (9, 10, 19, 20)
CAUSES = 3
STEADY_MAX = 50
REPAIR_S = 60.0
REPAIR_MIN_S = 6.0
"""Shorter failures could not be distinguished from a busy second."""
BETWEEN_MIN_S = 10.0
SLOWER = 6.0
WAIT_NS = 60e6
"""How much longer everything takes that a slow broker sends on."""


@dataclass(frozen=True)
class Topics:
    names: list[str]
    home: Ints
    """Which broker each is published at."""
    size_bytes: Ints
    steady: int
    """How many there are of these; they come first."""
    mean: Floats
    """Of steady ones the mean of the rate at peaks, of others the mean of a second in which they speak."""
    loadings: Floats
    own: Floats
    """The standard deviation that a steady topic has for itself."""
    speaks: Floats
    """The share of seconds in which a quiet topic speaks."""

    def peak_mean(self) -> Floats:
        return np.concatenate([self.mean[: self.steady], self.mean[self.steady :] * self.speaks])

    def peak_covariance(self) -> Floats:
        """Of whole messages a second: rounding adds a twelfth. A quiet topic's count is one more than Poisson's."""
        steady = self.loadings @ self.loadings.T + np.diag(self.own**2 + 1 / 12)
        every = np.zeros((len(self.names), len(self.names)))
        every[: self.steady, : self.steady] = steady
        loud, share = self.mean[self.steady :], self.speaks
        quiet = np.arange(self.steady, len(self.names))
        every[quiet, quiet] = share * (loud - 1 + loud**2) - (share * loud) ** 2
        return every


@dataclass(frozen=True)
class Links:
    ends: list[tuple[int, int]]
    latency_ns: Floats
    failure: Floats
    together: tuple[int, ...]
    slow: tuple[int, ...]
    slow_hours: tuple[int, ...]
    """Hours since the beginning in which the slow links are slow."""


@dataclass(frozen=True)
class Domain:
    brokers: list[str]
    broker_failure: Floats
    topics: Topics
    links: Links
    paths: dict[tuple[int, int], list[int]]
    """The way of fewest hops from each broker to each other."""
    slow_broker: int
    slow_broker_hours: tuple[int, ...]


def daily(second_s: Ints) -> Floats:
    """The load at a time of the day as a share of that at the peak."""
    hour = second_s // HOUR_S % 24
    night = (hour < 7) | (hour >= 23)
    return np.where(np.isin(hour, PEAK_HOURS), 1.0, np.where(night, 0.3, 0.6))


def draw(brokers: int, topics: int, hours: int, rng: np.random.Generator) -> Domain:
    names = [f"broker-{number:02d}" for number in range(brokers)]
    may_fail = np.arange(brokers) >= (brokers + 1) // 2
    failure = np.where(may_fail, rng.uniform(0.002, 0.02, brokers), 0.0)
    links = _links(brokers, hours, rng)
    paths = _paths(brokers, links.ends)
    used = Counter((min(hop), max(hop)) for path in paths.values() for hop in pairwise(path))
    busiest = links.ends.index(max(links.ends, key=lambda ends: used[ends]))
    sends_on = Counter(broker for path in paths.values() for broker in path[:-1] if not may_fail[broker])
    well = [hour for hour in range(hours) if hour not in links.slow_hours]
    waits = [hour for hour in well if hour % 24 in (14, 15)] or well[-1:]
    return Domain(
        names,
        failure,
        _topics(topics, brokers, rng),
        replace(links, slow=(busiest,)),
        paths,
        max(sends_on, key=lambda broker: sends_on[broker]),
        tuple(waits),
    )


def _topics(count: int, brokers: int, rng: np.random.Generator) -> Topics:
    steady = max(1, min(STEADY_MAX, count // 10))
    quiet = count - steady
    mean = rng.uniform(60, 120, steady)
    loadings = rng.uniform(0, 6, (steady, CAUSES)) * (rng.random((steady, CAUSES)) < 0.6)
    sites = max(1, min(40, count // 20))
    names = [f"site-{number % sites:02d}/sensor-{number:05d}" for number in range(count)]
    # Steady ones are published where nothing fails, so that their covariance is what is given here.
    home = np.concatenate([np.arange(steady) % ((brokers + 1) // 2), rng.integers(0, brokers, quiet)])
    return Topics(
        names,
        home,
        rng.integers(20, 400, count),
        steady,
        np.concatenate([mean, rng.uniform(1.5, 4, quiet)]),
        loadings,
        rng.uniform(1, 4, steady),
        rng.uniform(0.005, 0.05, quiet),
    )


def _links(brokers: int, hours: int, rng: np.random.Generator) -> Links:
    """A ring and as many chords."""
    ring = {(number, (number + 1) % brokers) for number in range(brokers)} if brokers > 2 else {(0, 1)}
    chords = {(int(a), int(b)) for a, b in rng.integers(0, brokers, (brokers, 2)) if a != b}
    ends = sorted({(min(pair), max(pair)) for pair in ring | chords})
    count = len(ends)
    failure = np.where(np.arange(count) % 3 == 0, 0.0, rng.uniform(0.002, 0.03, count))
    together = tuple(range(1, count, max(1, count // 3)))[:3] if count >= 6 else ()
    for link in together:
        failure[link] = failure[together[0]] or 0.01
    slow_hours = tuple(hour for hour in range(hours) if hour % 24 in (10, 11) and hour >= min(8, hours - 1))
    return Links(ends, rng.uniform(3e6, 30e6, count), failure, together, (), slow_hours or (hours - 1,))


def _paths(brokers: int, ends: list[tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
    beside: dict[int, list[int]] = {number: [] for number in range(brokers)}
    for a, b in ends:
        beside[a].append(b)
        beside[b].append(a)
    paths: dict[tuple[int, int], list[int]] = {}
    for start in range(brokers):
        reached = {start: [start]}
        for here in (order := [start]):
            for there in sorted(beside[here]):
                if there not in reached:
                    reached[there] = [*reached[here], there]
                    order.append(there)
        paths |= {(start, end): path for end, path in reached.items() if end != start}
    return paths


def down_spans(failure: float, seconds: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """From when to when something is down that is down with the given probability, in whole seconds."""
    if failure == 0:
        return []
    spans: list[tuple[int, int]] = []
    at = 0.0
    while True:
        at += BETWEEN_MIN_S + rng.exponential(REPAIR_S * (1 - failure) / failure - BETWEEN_MIN_S)
        lasts = REPAIR_MIN_S + rng.exponential(REPAIR_S - REPAIR_MIN_S)
        if at >= seconds:
            return spans
        spans.append((int(at), min(seconds, int(at + lasts))))
        at += lasts


def within(spans: list[tuple[int, int]], seconds: Ints) -> NDArray[np.bool_]:
    """Which of these seconds, which follow each other, are in one of the spans."""
    inside = np.zeros(len(seconds), dtype=np.bool_)
    for start, end in spans:
        if start <= seconds[-1] and end > seconds[0]:
            inside[max(0, start - seconds[0]) : max(0, end - seconds[0])] = True
    return inside
