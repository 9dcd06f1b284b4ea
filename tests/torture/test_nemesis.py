"""The faults of a seed."""

from itertools import pairwise

from nemesis import WEIGHTS, plan

BROKERS, LINKS, READERS = ["a", "b", "c"], ["a-b", "b-c"], ["r"]


def test_a_seed_repeats_its_faults_and_another_has_others() -> None:
    first, again, other = (plan(seed, 60.0, BROKERS, LINKS, READERS, tuple(WEIGHTS)) for seed in (1, 1, 2))
    assert first == again != other


def test_twenty_seeds_have_all_kinds_and_all_end_in_time() -> None:
    faults = [fault for seed in range(20) for fault in plan(seed, 60.0, BROKERS, LINKS, READERS, tuple(WEIGHTS))]
    assert {fault.kind for fault in faults} == set(WEIGHTS)
    assert all(fault.at_s + fault.for_s <= 60.0 for fault in faults)


def test_a_process_is_not_killed_while_it_is_stopped() -> None:
    faults = plan(3, 600.0, BROKERS, LINKS, READERS, ("kill", "pause"))
    for broker in BROKERS:
        spans = [(one.at_s, one.at_s + one.for_s) for one in faults if one.target == broker]
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_only_what_can_be_done_is_planned() -> None:
    assert {one.kind for one in plan(4, 60.0, BROKERS, LINKS, READERS, ("kill", "cut"))} == {"kill", "cut"}
