"""Scores of candidates: equations 1 to 5 of the paper, with values computed by hand."""

import pytest

from overlane.recovery.hosts.scoring import (
    Needs,
    Resources,
    Score,
    Weights,
    parse_command_output,
    ranked,
    score,
)

PAPER = Weights(cpu=1, memory=1, bandwidth=50, battery=60)
"""The weights of the paper's example: the processor has 1/(1 + 1 + 50 + 60)."""
NEEDS = Needs(cpu_ghz=2.0, memory_gib=1.0, bandwidth_mbps=10.0, battery_hours=3.0)


def test_each_criterion_is_1_where_there_is_enough_and_falls_with_what_lacks() -> None:
    found = score(
        Resources(
            cpu_ghz=2.4,
            cpu_used=0.5,  # 1.2 GHz free, 0.8 too few: exp(-0.8)
            memory_gib=2.0,
            memory_used=0.25,  # 1.5 GiB free: enough
            battery_hours=2.5,  # 0.5 h too few: exp(-0.5)
            bandwidth_mbps=(100.0, 9.0),  # enough, and 1 Mbit/s too few: (1 + exp(-1)) / 2
        ),
        NEEDS,
        PAPER,
    )
    # exp(-0.8) = 0.449329, exp(-0.5) = 0.606531, exp(-1) = 0.367879
    # (1 * 0.449329 + 1 * 1 + 50 * 0.683940 + 60 * 0.606531) / 112 = 72.038189 / 112
    assert found.cpu == pytest.approx(0.449329, abs=1e-6)
    assert found.memory == 1.0
    assert found.battery == pytest.approx(0.606531, abs=1e-6)
    assert found.bandwidth == pytest.approx(0.683940, abs=1e-6)
    assert found.total == pytest.approx(0.643198, abs=1e-6)


def test_the_processor_weighs_one_112th_in_the_papers_example() -> None:
    without_cpu = score(Resources(cpu_ghz=0.0), Needs(cpu_ghz=1000.0), PAPER)
    assert without_cpu.total == pytest.approx(111 / 112)


def test_what_was_not_measured_does_not_lower_the_score() -> None:
    assert score(Resources(), NEEDS, PAPER) == Score(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)


def test_more_than_needed_does_not_raise_the_score() -> None:
    assert score(Resources(cpu_ghz=64.0), NEEDS, PAPER).total == score(Resources(cpu_ghz=2.0), NEEDS, PAPER).total


def test_an_external_program_is_one_more_criterion() -> None:
    weights = Weights(cpu=1, memory=0, bandwidth=0, battery=0, command=3)
    assert score(Resources(command=0.5), Needs(), weights).total == pytest.approx((1 + 3 * 0.5) / 4)
    assert score(Resources(command=7.0), Needs(), weights).command == 1.0
    assert score(Resources(command=-7.0), Needs(), weights).command == 0.0


@pytest.mark.parametrize("wrong", [float("nan"), float("-inf")])
def test_a_measurement_that_is_no_number_counts_as_nothing(wrong: float) -> None:
    found = score(Resources(cpu_ghz=wrong, battery_hours=wrong, command=wrong), NEEDS, PAPER)
    assert (found.cpu, found.battery, found.command) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0.75\n", 0.75), ("score: 1e-2", 0.01), ("", None), ("none", None), ("nan", None), ("inf", None)],
)
def test_the_number_of_an_external_program_is_its_last_word(text: str, number: float | None) -> None:
    assert parse_command_output(text) == number


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_weights_are_checked(wrong: float) -> None:
    with pytest.raises(ValueError, match="weights"):
        Weights(cpu=wrong)
    with pytest.raises(ValueError, match="weights"):
        Weights(0, 0, 0, 0)


def test_only_candidates_in_sync_are_ranked_and_the_name_decides_between_equals() -> None:
    poor, good = (score(Resources(battery_hours=hours), NEEDS, PAPER).total for hours in (1.0, 9.0))
    scores = {"denver": poor, "orlando": good, "boston": good, "miami": good}
    in_sync = ["denver", "orlando", "boston", "unknown"]
    assert ranked(scores, in_sync) == ["boston", "orlando", "denver", "unknown"]
    assert ranked(scores, in_sync, lambda name: name[::-1].encode()) == ["boston", "orlando", "denver", "unknown"]
