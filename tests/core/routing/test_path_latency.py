"""Path latency: what is measured end to end counts where less is claimed."""

from overlane.core.routing.selection.path_latency import HOLDS, SAMPLES, PathLatency
from overlane.core.units import MS, NEVER, SECOND

WAY = ("a", "b", "c")


def measured(latency: PathLatency, took_ms: list[int], claimed_ms: int = 20, path: tuple[str, ...] = WAY) -> None:
    for ms in took_ms:
        latency.measured(path, ms * MS, claimed_ms * MS, 0)


def test_a_path_that_always_takes_longer_than_claimed_counts_as_long_as_it_takes() -> None:
    latency = PathLatency()
    measured(latency, [70] * (SAMPLES - 1))
    assert latency.extra_us == {}
    measured(latency, [80])
    assert latency.extra_us == {("b", "c"): 50_000}
    measured(latency, [70] * 2 * SAMPLES)
    assert latency.extra_us == {("b", "c"): 50_000}


def test_the_least_of_several_samples_counts_so_that_queues_do_not() -> None:
    latency = PathLatency()
    measured(latency, [300, 400, 22, 500, 300] * 4)
    assert latency.extra_us == {}


def test_less_than_a_quarter_or_10_ms_is_let_pass() -> None:
    latency = PathLatency()
    measured(latency, [29] * SAMPLES)
    measured(latency, [120] * SAMPLES, claimed_ms=100, path=("a", "d", "c"))
    assert latency.extra_us == {}


def test_the_first_link_is_measured_by_this_broker_itself() -> None:
    latency = PathLatency()
    measured(latency, [500] * SAMPLES, path=("a", "c"))
    assert latency.extra_us == {}


def test_a_path_that_shares_a_link_and_takes_less_corrects_what_was_put_on_it() -> None:
    latency = PathLatency()
    measured(latency, [100] * SAMPLES, path=("a", "b", "e", "c"))
    assert latency.extra_us == {("b", "e"): 40_000, ("e", "c"): 40_000}
    measured(latency, [20] * SAMPLES, path=("a", "d", "e", "c"))
    assert latency.extra_us == {("b", "e"): 40_000}
    measured(latency, [100] * 2 * SAMPLES, path=("a", "b", "e", "c"))
    assert sum(latency.extra_us.values()) == 80_000


def test_what_was_added_ends_and_lasts_twice_as_long_when_it_comes_back() -> None:
    latency = PathLatency()
    measured(latency, [100] * SAMPLES)
    assert latency.expires_at == HOLDS
    latency.expire(HOLDS)
    assert (latency.extra_us, latency.expires_at) == ({}, NEVER)
    for _ in range(SAMPLES):
        latency.measured(WAY, 100 * MS, 20 * MS, HOLDS)
    assert latency.expires_at == HOLDS + 2 * HOLDS
    latency.expire(HOLDS + SECOND)
    assert latency.extra_us == {("b", "c"): 80_000}
