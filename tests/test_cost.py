"""What a message costs, held against the limits of bench/cost.py. Ratios within a run: the machine may be busy.

Others on the machine take caches away, and not from all that is measured alike. What is too much in one series of
measurements is measured again: a cost that is too high is so in every series.
"""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROUNDS = 9
SERIES_MAX = 4

pytestmark = pytest.mark.slow


class Figures:
    """The medians of figures for messages of the default class, series by series."""

    def __init__(self, measure: Callable[[], Callable[[str], float]]) -> None:
        self._measure = measure
        self._series: list[Callable[[str], float]] = []

    def of(self, figure: str) -> Iterator[float]:
        for number in range(SERIES_MAX):
            if number == len(self._series):
                self._series.append(self._measure())
            yield self._series[number](figure)


@pytest.fixture(scope="module")
def figures() -> Figures:
    pytest.importorskip("mqtt5")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "bench"))
        measures: Any = importlib.import_module("_cost_measures")

    def measure() -> Callable[[str], float]:
        costs = measures.measure(measures.CLASSES["deadline, adaptive"], ROUNDS)
        return lambda figure: float(measures.typical(costs, lambda one: getattr(one, figure)))

    return Figures(measure)


def test_making_a_parcels_bytes_and_reading_them_takes_no_more_than_three_times_reading_mqtt(figures: Figures) -> None:
    assert any(ratio <= 3.0 for ratio in figures.of("codec")), list(figures.of("codec"))


def test_publishing_into_a_parcel_and_reading_it_takes_no_more_than_three_times_reading_mqtt(figures: Figures) -> None:
    assert any(ratio <= 3.0 for ratio in figures.of("packing")), list(figures.of("packing"))


def test_transit_is_at_least_twenty_times_cheaper_per_message_by_the_parcel(figures: Figures) -> None:
    assert any(gain >= 20.0 for gain in figures.of("transit_gain")), list(figures.of("transit_gain"))
