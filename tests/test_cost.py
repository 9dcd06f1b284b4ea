"""What a message costs, held against the limits of bench/cost.py. Ratios within a run: the machine may be busy."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROUNDS = 9

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def typical() -> Callable[[str], float]:
    """The median of a figure for messages of the default class."""
    pytest.importorskip("mqtt5")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "bench"))
        measures: Any = importlib.import_module("_cost_measures")
    costs = measures.measure(measures.CLASSES["deadline, adaptive"], ROUNDS)
    return lambda figure: float(measures.typical(costs, lambda one: getattr(one, figure)))


def test_making_a_parcels_bytes_and_reading_them_takes_no_more_than_three_times_reading_mqtt(
    typical: Callable[[str], float],
) -> None:
    assert typical("codec") <= 3.0


def test_publishing_into_a_parcel_and_reading_it_takes_no_more_than_three_times_reading_mqtt(
    typical: Callable[[str], float],
) -> None:
    assert typical("packing") <= 3.0


def test_transit_is_at_least_twenty_times_cheaper_per_message_by_the_parcel(typical: Callable[[str], float]) -> None:
    assert typical("transit_gain") >= 20.0
