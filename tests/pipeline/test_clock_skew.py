"""Clocks that are wrong: both ends of links tell by how much, and nothing is told where there is no evidence."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from overlane.pipeline.analysis.clock_skew import SAMPLE_S, End, Shift, broker_offsets, shift_between
from overlane.pipeline.samples.sample import write_sample
from overlane.pipeline.units import HOUR_S, SECOND_NS

SEEDS = (101, 202, 303)


def end(received: Any = None, sent: Any = None, latency: Any = None, downs: Any = ()) -> End:
    nothing = np.full(SAMPLE_S, np.nan)
    series = [nothing if each is None else each for each in (received, sent, latency)]
    return End(series[0], series[1], series[2], list(downs))


def late(values: Any, seconds: int) -> Any:
    """As a clock writes it down that is so far ahead."""
    return np.roll(values, seconds)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ahead", [-40, -3, 0, 1, 100])
def test_traffic_tells_how_far_clocks_are_apart(seed: int, ahead: int) -> None:
    rng = np.random.default_rng(seed)
    sent = 2_000 + rng.poisson(300, SAMPLE_S) * 80.0
    received = late(sent + rng.normal(0, 2_000, SAMPLE_S), ahead)
    found = shift_between(end(sent=sent), end(received=received))
    assert found is not None
    assert found[0] == ahead


@pytest.mark.parametrize("seed", SEEDS)
def test_chance_trends_and_periods_tell_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    trend = np.linspace(0, 1e6, SAMPLE_S)
    assert shift_between(end(sent=rng.normal(0, 1, SAMPLE_S)), end(received=rng.normal(0, 1, SAMPLE_S))) is None
    noise = [trend + rng.normal(0, 1_000, SAMPLE_S) for _ in range(2)]
    assert shift_between(end(sent=noise[0]), end(received=late(noise[1], 3))) is None
    regular = np.where(np.arange(SAMPLE_S) % 5 == 0, 900.0, 100.0)
    assert shift_between(end(sent=regular), end(received=late(regular, 3))) is None
    assert shift_between(end(sent=np.full(SAMPLE_S, 80.0)), end(received=np.full(SAMPLE_S, 80.0))) is None
    assert shift_between(end(), end()) is None


def test_outages_tell_it_where_traffic_does_not() -> None:
    assert shift_between(end(downs=[(100, 102), (900, 960)]), end(downs=[(103, 105), (903, 964)])) == (3, 8.0)
    # The ends may notice it a second apart, and a broker that dies is seen by one end alone.
    assert shift_between(end(downs=[(100, 130)]), end(downs=[(101, 131)])) == (0, 4.0)
    assert shift_between(end(downs=[(100, 130)]), end(downs=[(100, 180)])) is None
    assert shift_between(end(downs=[(100, 130), (500, 550)]), end(downs=[(103, 133), (500, 550)])) is None


def test_the_offsets_of_brokers_follow_from_the_shifts_of_links() -> None:
    def hour(number: int, *links: tuple[str, str, int]) -> list[Shift]:
        return [Shift(one, other, number * HOUR_S, shift, 9.0) for one, other, shift in links]

    shifts = [
        *hour(0, ("a", "b", 3), ("b", "c", -3), ("c", "d", 0), ("x", "y", 0)),
        *hour(3, ("a", "b", 3), ("a", "c", 0)),
    ]
    found = {key: offset for key, (offset, _) in broker_offsets(shifts).items()}
    assert [found[name, 0] for name in "abcdxy"] == [0, 3, 0, 0, 0, 0]
    assert [found[name, 3 * HOUR_S] for name in "abc"] == [0, 3, 0]
    assert ("d", 3 * HOUR_S) not in found, "nothing tells it"


@pytest.mark.parametrize("seed", SEEDS)
def test_brokers_of_a_sample_whose_clocks_are_wrong_are_found_and_no_others(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    write_sample(tmp_path, 4, 6, 1, seed)
    ahead = {"broker-01": 3, "broker-02": -7}
    ends: dict[tuple[str, str], End] = {}
    for file in (tmp_path / "links").rglob("*.parquet"):
        table = pq.read_table(file)
        broker = table["broker"][0].as_py()
        seconds = table["at_ns"].to_numpy() // SECOND_NS % HOUR_S - 1 + ahead.get(broker, 0)
        for peer in set(table["peer"].to_pylist()):
            mine = (table["peer"].to_numpy() == peer) & (seconds >= 0) & (seconds < SAMPLE_S)
            latency = np.full(SAMPLE_S, np.nan)
            latency[seconds[mine]] = table["latency_ns"].to_numpy().astype(float)[mine]
            ends[broker, peer] = end(latency=latency)
    shifts = []
    for one, other in ends:
        found = shift_between(ends[one, other], ends[other, one]) if one < other else None
        if found is not None:
            shifts.append(Shift(one, other, 0, *found))
    offsets = {broker: offset for (broker, _), (offset, _) in broker_offsets(shifts).items()}
    assert offsets == {"broker-00": 0, "broker-03": 0, **ahead}
