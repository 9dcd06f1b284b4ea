"""Replicas through every fault: crashes, emptied disks, pauses, one-way cuts, reordering, slow disks, and a
coordination service that is late, stale, and loses answers and sessions.

`OVERLANE_SEEDS=5000 pytest tests/recovery/test_replica_soak.py` runs as many seeds.
"""

import os

import pytest
from replica_soak import run_seed

from examples import seeds

SEEDS = int(os.environ.get("OVERLANE_SEEDS", seeds(300)))
AT_ONCE = 25


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_nothing_acknowledged_is_lost_and_replicas_go_on_when_faults_end(first: int) -> None:
    for seed in range(first, min(SEEDS, first + AT_ONCE)):
        assert run_seed(seed).acked  # Violation tells the seed


@pytest.mark.parametrize("first", range(0, SEEDS // 3, AT_ONCE))
def test_no_clock_is_needed_to_keep_what_was_acknowledged(first: int) -> None:
    for seed in range(first, min(SEEDS // 3, first + AT_ONCE)):
        run_seed(seed, has_wild_clocks=True)


@pytest.mark.parametrize("first", range(0, SEEDS // 3, AT_ONCE))
def test_nothing_acknowledged_is_lost_while_the_broker_is_moved_again_and_again(first: int) -> None:
    for seed in range(first, min(SEEDS // 3, first + AT_ONCE)):
        assert run_seed(seed, has_moves=True).acked


@pytest.mark.parametrize("first", range(0, SEEDS // 3, AT_ONCE))
def test_nothing_acknowledged_is_lost_where_mirrors_claim_by_their_scores(first: int) -> None:
    for seed in range(first, min(SEEDS // 3, first + AT_ONCE)):
        assert run_seed(seed, has_ranks=True).acked


@pytest.mark.parametrize(
    "seed",
    [
        54468,  # a mirror whose claim had come to nothing acknowledged frames of an epoch that its claim had ended
        26862,  # a mirror that had lost a part of a snapshot waited for it for ever: the primary asked by `Begin` alone
    ],
)
def test_seeds_that_have_failed(seed: int) -> None:
    run_seed(seed)
