"""Sample: telemetry of an artificial domain, as its brokers would have written it, and its ground truth.

It is generated hour by hour with arrays, one file per broker and table: a week of twenty brokers and a thousand topics
takes minutes. The same seed gives the same sample.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overlane.pipeline.samples.ground_truth import (
    SLOWER,
    WAIT_NS,
    Domain,
    Floats,
    Ints,
    daily,
    down_spans,
    draw,
    within,
)
from overlane.pipeline.samples.sample_interest import SUBSCRIBERS, filters, interest, overlaps
from overlane.pipeline.units import HOUR_S, SECOND_NS
from overlane.telemetry.schema import SCHEMAS

START_S = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp())
DELIVERIES_PER_SECOND = 2
DEADLINE_NS = 8_000_000
"""And half as much again as the links of the way take when they are well."""
SLOW_QUEUE = 200
"""So many times as much is in the queues of a slow broker."""
TRUTH = "truth.json"


@dataclass(frozen=True, slots=True)
class Sampled:
    rows: int
    files: int
    truth: Path


def write_sample(
    lake: Path,
    brokers: int,
    topics: int,
    hours: int,
    seed: int,
    start_s: int = START_S,
    told: Callable[[int, int], None] = lambda _done, _of: None,
) -> Sampled:
    """Telemetry of so many hours. `told` is called with the number of completed hours."""
    rng = np.random.default_rng(seed)
    domain = draw(brokers, topics, hours, rng)
    writing = _Writing(lake, domain, hours, start_s, rng)
    for hour in range(hours):
        writing.hour(hour)
        told(hour + 1, hours)
    truth = lake / TRUTH
    truth.write_bytes(msgspec.json.format(msgspec.json.encode(_truth(domain, writing, seed, hours, start_s)), indent=1))
    return Sampled(writing.rows, writing.files, truth)


class _Writing:
    def __init__(self, lake: Path, domain: Domain, hours: int, start_s: int, rng: np.random.Generator) -> None:
        self._lake = lake
        self._domain = domain
        self._start_s = start_s
        self._rng = rng
        self.rows = self.files = 0
        seconds = hours * HOUR_S
        links = domain.links
        self.broker_downs = [down_spans(p, seconds, rng) for p in domain.broker_failure.tolist()]
        self.link_downs = [down_spans(p, seconds, rng) for p in links.failure.tolist()]
        for link in links.together[1:]:
            self.link_downs[link] = self.link_downs[links.together[0]]
        self._names = pa.array(domain.brokers)
        self._topics = pa.array(domain.topics.names)

    def hour(self, hour: int) -> None:
        first = hour * HOUR_S
        seconds = np.arange(first, first + HOUR_S)
        alive = np.stack([~within(downs, seconds) for downs in self.broker_downs])
        link_up = np.stack([~within(downs, seconds) for downs in self.link_downs])
        self._load(hour, seconds, alive)
        latency = self._links(hour, seconds, alive, link_up)
        self._deliveries(hour, seconds, alive, latency)
        for broker in range(len(self._domain.brokers)):
            self._queues(hour, broker, seconds[alive[broker]])
            self._events(hour, broker, seconds)
            if hour % 24 == 0:
                self._interests(hour, broker, first)

    def _load(self, hour: int, seconds: Ints, alive: Any) -> None:
        topics, rng = self._domain.topics, self._rng
        share = daily(seconds + self._start_s)[:, np.newaxis]
        causes = rng.standard_normal((HOUR_S, topics.loadings.shape[1])) @ topics.loadings.T
        own = rng.standard_normal((HOUR_S, topics.steady)) * topics.own
        steady = np.rint(np.maximum(0.0, share * (topics.mean[: topics.steady] + causes + own))).astype(np.int64)
        at, topic = np.nonzero(steady)
        loud_at, loud = np.nonzero(rng.random((HOUR_S, len(topics.speaks)), dtype=np.float32) < topics.speaks * share)
        # At least one message, and a Poisson number more.
        count = 1 + rng.poisson(topics.mean[topics.steady + loud] - 1)
        every_at = np.concatenate([at, loud_at])
        every_topic = np.concatenate([topic, loud + topics.steady])
        messages = np.concatenate([steady[at, topic], count])
        home = topics.home[every_topic]
        for broker in range(len(self._domain.brokers)):
            here = np.flatnonzero((home == broker) & alive[broker, every_at])
            here = here[np.argsort(every_at[here], kind="stable")]
            sizes = topics.size_bytes[every_topic[here]]
            many = messages[here]
            nothing = np.zeros(len(here), dtype=np.int64)
            self._write(
                "topic_rates",
                hour,
                broker,
                seconds[every_at[here]] + 1,
                [
                    self._topics.take(pa.array(every_topic[here])),
                    many,
                    many * sizes,
                    nothing,
                    nothing,
                    many,
                    many * sizes,
                ],
                is_counted=True,
            )

    def _links(self, hour: int, seconds: Ints, alive: Any, link_up: Any) -> Floats:
        """Writes both ends of every link, and gives the latencies of the hour."""
        links, rng = self._domain.links, self._rng
        slow = np.array(
            [SLOWER if n in links.slow and hour in links.slow_hours else 1.0 for n in range(len(links.ends))]
        )
        base = links.latency_ns * slow
        latency: Floats = base[:, np.newaxis] * (1 + 0.02 * rng.standard_normal((len(base), HOUR_S)))
        ends = [(a, b, n) for n, (a, b) in enumerate(links.ends)] + [(b, a, n) for n, (a, b) in enumerate(links.ends)]
        for broker in range(len(self._domain.brokers)):
            mine = [(peer, number) for here, peer, number in ends if here == broker]
            at = np.flatnonzero(alive[broker])
            peers = np.repeat([peer for peer, _ in mine], len(at))
            numbers = np.repeat([number for _, number in mine], len(at))
            when = np.tile(at, len(mine))
            is_up = link_up[numbers, when] & alive[peers, when]
            order = np.argsort(when, kind="stable")
            peers, numbers, when, is_up = peers[order], numbers[order], when[order], is_up[order]
            measured = latency[numbers, when].astype(np.int64)
            queue = rng.integers(0, 2_000, len(when)) * np.where(np.isin(numbers, links.slow), 5, 1)
            if self._is_slow(broker, hour):
                queue = queue * SLOW_QUEUE
            self._write(
                "links",
                hour,
                broker,
                seconds[when] + 1,
                [
                    self._names.take(pa.array(peers)),
                    pa.array(["failed", "up"]).take(pa.array(is_up.astype(np.int64))),
                    pa.array(measured, mask=~is_up),
                    pa.array(measured // 50, mask=~is_up),
                    pa.array(np.zeros(len(when)), mask=~is_up),
                    queue // 200,
                    queue,
                    queue,
                    queue * 10,
                    queue * 10,
                ],
                is_counted=True,
            )
        return latency

    def _deliveries(self, hour: int, seconds: Ints, alive: Any, latency: Floats) -> None:
        domain, rng = self._domain, self._rng
        number = {ends: index for index, ends in enumerate(domain.links.ends)}
        for broker in range(len(domain.brokers)):
            at = np.repeat(np.flatnonzero(alive[broker]), DELIVERIES_PER_SECOND)
            topic = rng.integers(0, domain.topics.steady, len(at))
            origin = domain.topics.home[topic]
            far = origin != broker
            at, topic, origin = at[far], topic[far], origin[far]
            ways = {start: domain.paths[start, broker] for start in set(origin.tolist())}
            age = rng.exponential(1e6, len(at))
            deadline = np.full(len(at), DEADLINE_NS)
            for start, way in ways.items():
                here = origin == start
                for a, b in pairwise(way):
                    link = number[min(a, b), max(a, b)]
                    age[here] += latency[link, at[here]]
                    deadline[here] += int(1.5 * domain.links.latency_ns[link])
                    if self._is_slow(a, hour):
                        age[here] += WAIT_NS
            hops = np.array([len(ways[start]) - 1 for start in range(len(domain.brokers)) if start in ways])
            starts = sorted(ways)
            place = np.searchsorted(starts, origin)
            paths = pa.array([[domain.brokers[b] for b in ways[start]] for start in starts], pa.list_(pa.string()))
            self._write(
                "deliveries",
                hour,
                broker,
                seconds[at],
                [
                    self._topics.take(pa.array(topic)),
                    self._names.take(pa.array(origin)),
                    age.astype(np.int64),
                    deadline,
                    age <= deadline,
                    np.zeros(len(at), dtype=np.bool_),
                    pa.repeat(pa.scalar("single"), len(at)),
                    domain.topics.size_bytes[topic],
                    hops[place] if len(hops) else np.zeros(0, dtype=np.int64),
                    paths.take(pa.array(place)),
                    np.full(len(at), 5),
                ],
            )

    def _is_slow(self, broker: int, hour: int) -> bool:
        return broker == self._domain.slow_broker and hour in self._domain.slow_broker_hours

    def _queues(self, hour: int, broker: int, seconds: Ints) -> None:
        nothing = np.zeros(len(seconds), dtype=np.int64)
        columns = [pa.repeat(pa.scalar("clients"), len(seconds)), pa.nulls(len(seconds), pa.string())]
        self._write(
            "queues", hour, broker, seconds + 1, [*columns, nothing, nothing, pa.nulls(len(seconds), pa.int64())]
        )

    def _events(self, hour: int, broker: int, seconds: Ints) -> None:
        """A broker records its start; a failure is not recorded."""
        starts = [0, *(end for _, end in self.broker_downs[broker])]
        here = np.array([start for start in starts if seconds[0] <= start <= seconds[-1]], dtype=np.int64)
        given = {"kind": pa.repeat(pa.scalar("broker-started"), len(here))}
        others = [given.get(field.name, pa.nulls(len(here), field.type)) for field in list(SCHEMAS["events"])[3:]]
        self._write("events", hour, broker, here + 1, others)

    def _interests(self, hour: int, broker: int, first: int) -> None:
        wanted = filters(self._domain, broker)
        many = np.full(len(wanted), SUBSCRIBERS)
        at = np.full(len(wanted), first + 1)
        self._write("interests", hour, broker, at, [pa.array(wanted), pa.repeat(pa.scalar(""), len(wanted)), many])

    def _write(
        self, table: str, hour: int, broker: int, at_s: Ints, columns: list[Any], is_counted: bool = False
    ) -> None:
        rows = len(at_s)
        if rows == 0:
            return
        at_ns = (at_s + self._start_s) * SECOND_NS + 200_000
        lengths = [np.full(rows, SECOND_NS)] if is_counted else []
        who = [pa.repeat(pa.scalar(self._domain.brokers[broker]), rows), np.ones(rows, dtype=np.int64)]
        schema = SCHEMAS[table]
        arrays = [
            (pa.array(column) if isinstance(column, np.ndarray) else column).cast(field.type)
            for column, field in zip([at_ns, *who, *lengths, *columns], schema, strict=True)
        ]
        date = datetime.fromtimestamp(self._start_s + hour * HOUR_S, UTC).date()
        directory = self._lake / table / f"date={date}"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self._domain.brokers[broker]}-1-{hour + 1}.parquet"
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, compression="zstd")
        self.rows += rows
        self.files += 1


def _truth(domain: Domain, writing: _Writing, seed: int, hours: int, start_s: int) -> dict[str, Any]:
    topics, links = domain.topics, domain.links
    steady = topics.steady
    wanted = interest(domain, writing.broker_downs, hours, start_s)
    named = [[domain.brokers[a], domain.brokers[b]] for a, b in links.ends]
    return {
        "seed": seed,
        "hours": hours,
        "start_s": start_s,
        "brokers": [
            {"name": name, "failure": p, "downs": downs}
            for name, p, downs in zip(domain.brokers, domain.broker_failure.tolist(), writing.broker_downs, strict=True)
        ],
        "links": [
            {"ends": sorted(ends), "failure": p, "latency_ms": ns / 1e6, "downs": downs}
            for ends, p, ns, downs in zip(
                named, links.failure.tolist(), links.latency_ns.tolist(), writing.link_downs, strict=True
            )
        ],
        "together": [sorted(named[link]) for link in links.together],
        "slow": [sorted(named[link]) for link in links.slow],
        "slower": SLOWER,
        "slow_hours": [start_s + hour * HOUR_S for hour in links.slow_hours],
        "slow_broker": domain.brokers[domain.slow_broker],
        "slow_broker_ms": WAIT_NS / 1e6,
        "slow_broker_hours": [start_s + hour * HOUR_S for hour in domain.slow_broker_hours],
        "steady_topics": topics.names[:steady],
        "steady_covariance": topics.peak_covariance()[:steady, :steady].tolist(),
        "peak_mean": dict(zip(topics.names, topics.peak_mean().tolist(), strict=True)),
        "interest": wanted,
        "interest_overlap": overlaps(wanted),
    }
