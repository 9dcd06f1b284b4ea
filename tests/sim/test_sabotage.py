"""The soak notices when the core is broken on purpose.

Each sabotage takes one safeguard away. Beside it stands the first seed that shows it, counted from 0, found by

    python tests/sim/test_sabotage.py
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import pytest
from test_soak import SEEDS as SOAKED

from overlane.core.flows.arrival import Arrival
from overlane.core.flows.source import Source
from overlane.core.routing.forwarding.duplicate_window import DuplicateFilter, DuplicateWindow
from overlane.sim.soak import run_seed

Sabotage = Callable[[], AbstractContextManager[object]]

_is_new = DuplicateFilter.record


def without_duplicate_window() -> AbstractContextManager[object]:
    """Every parcel is new, however often it comes."""
    return patch.object(DuplicateWindow, "record", lambda _self, _number: True)


def without_incarnation() -> AbstractContextManager[object]:
    """The parcels of a restarted broker are taken for those of its earlier life."""
    return patch.object(
        DuplicateFilter, "record", lambda self, origin, _incarnation, number: _is_new(self, origin, 0, number)
    )


def without_resending() -> AbstractContextManager[object]:
    """What was lost on the way is not sent again, neither when the route moves nor later."""
    return patch.object(Source, "_resend", lambda *_args, **_more: None)


def without_strict_order() -> AbstractContextManager[object]:
    """A reliable parcel waits for earlier ones no longer than its deadline allows, whatever its topic says."""
    return patch.object(Arrival, "is_strict", False)


SEEDS: dict[Sabotage, int] = {
    without_duplicate_window: 1,
    without_incarnation: 12,
    without_resending: 1,
    without_strict_order: 6,
}
SEEDS_MAX = 200


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", SEEDS, ids=lambda sabotage: sabotage.__name__)
def test_the_soak_notices_a_core(sabotage: Sabotage) -> None:
    seed = SEEDS[sabotage]
    assert first_broken(sabotage, range(seed, seed + 1)) == seed
    assert seed in SOAKED  # the soak proves that it is not broken without the sabotage


def first_broken(sabotage: Sabotage, seeds: range) -> int | None:
    with sabotage():
        return next((seed for seed in seeds if run_seed(seed).broken), None)


if __name__ == "__main__":
    for one in SEEDS:
        sys.stdout.write(f"{one.__name__}: seed {first_broken(one, range(SEEDS_MAX))}\n")
        sys.stdout.flush()
