"""Interest in a sample: the subscriptions, and the expected traffic per topic and overlap per pair of brokers.

The clients of every broker subscribe to all topics of one site, and to up to twenty topics by name. A topic matched by
both counts twice. The expected rate of a topic follows from its rate at peaks, the times of day that the sample covers,
and the downtime of its broker; since seconds are random, it has a standard error.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from overlane.pipeline.samples.ground_truth import Domain, Floats, daily, within
from overlane.pipeline.units import HOUR_S

SITES_WANTED = 4
NAMED_MAX = 20
SUBSCRIBERS = 2
"""Of each filter."""


@dataclass(frozen=True, slots=True)
class ExpectedInterest:
    broker: str
    topic: str
    subscribers: int
    messages_per_second: float
    messages_per_second_error: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ExpectedOverlap:
    broker: str
    peer: str
    topics: int
    jaccard: float


def filters(domain: Domain, broker: int) -> list[str]:
    return [f"{_site(broker)}/#", *_named(domain, broker)]


def _site(broker: int) -> str:
    return f"site-{broker % SITES_WANTED:02d}"


def _named(domain: Domain, broker: int) -> list[str]:
    return domain.topics.names[broker :: len(domain.brokers)][:NAMED_MAX]


def interest(domain: Domain, downs: list[list[tuple[int, int]]], hours: int, start_s: int) -> list[ExpectedInterest]:
    """What each broker's clients want, when brokers were down from when to when."""
    topics = domain.topics
    means, errors = _rates(domain, downs, hours, start_s)
    found = []
    for broker, name in enumerate(domain.brokers):
        site, named = _site(broker), set(_named(domain, broker))
        for number, topic in enumerate(topics.names):
            many = SUBSCRIBERS * ((topic.split("/")[0] == site) + (topic in named))
            if many:
                size_bytes = int(topics.size_bytes[number])
                found.append(
                    ExpectedInterest(name, topic, many, float(means[number]), float(errors[number]), size_bytes)
                )
    return found


def overlaps(wanted: list[ExpectedInterest]) -> list[ExpectedOverlap]:
    """Of all who want something in common."""
    of: dict[str, set[str]] = {}
    for one in wanted:
        of.setdefault(one.broker, set()).add(one.topic)
    return [
        ExpectedOverlap(
            broker, peer, len(of[broker] & of[peer]), len(of[broker] & of[peer]) / len(of[broker] | of[peer])
        )
        for broker, peer in combinations(sorted(of), 2)
        if of[broker] & of[peer]
    ]


def _rates(domain: Domain, downs: list[list[tuple[int, int]]], hours: int, start_s: int) -> tuple[Floats, Floats]:
    """The mean rate of every topic over the whole sample, and the standard error of that."""
    topics, steady = domain.topics, domain.topics.steady
    seconds = np.arange(hours * HOUR_S)
    share = daily(seconds + start_s)
    heard = np.stack([np.where(within(spans, seconds), 0.0, share) for spans in downs])
    total, squares = heard.sum(axis=1)[topics.home], np.square(heard).sum(axis=1)[topics.home]
    observed = np.count_nonzero(heard, axis=1)[topics.home]
    variance = np.square(topics.loadings).sum(axis=1) + topics.own**2
    # Of whole messages: rounding adds a twelfth. One message at least, and a Poisson number more.
    of_steady = squares[:steady] * variance + observed[:steady] / 12
    loud, speaks = topics.mean[steady:], topics.speaks
    of_quiet = total[steady:] * speaks * (loud - 1 + loud**2) - squares[steady:] * (speaks * loud) ** 2
    error = np.sqrt(np.concatenate([of_steady, of_quiet])) / len(seconds)
    return topics.peak_mean() * total / len(seconds), error
