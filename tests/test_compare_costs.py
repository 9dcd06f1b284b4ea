"""bench/compare_costs.py: what a message costs in opcodes is what was committed, and more of them would be noticed."""

import pytest

pytestmark = pytest.mark.usefixtures("bench_folder")


def test_a_message_costs_no_more_opcodes_than_was_committed() -> None:
    import compare_costs

    committed = compare_costs.committed_figures("opcodes")
    if not committed:
        pytest.skip(f"no figures for Python {compare_costs.VERSION}")
    found = compare_costs.opcodes_of_lone(messages=15) | compare_costs.opcodes_of_qos1(rounds=4)
    told = compare_costs.compared(found, committed, compare_costs.TOLERANCES["opcodes"])
    assert set(told) == set(committed)
    assert "MORE" not in told.values(), found


def test_more_and_less_than_committed_is_told() -> None:
    from compare_costs import compared

    found = {"as before": 101.0, "more": 103.0, "less": 97.0, "new": 5.0}
    committed = {"as before": 100.0, "more": 100.0, "less": 100.0}
    told = {"as before": "", "more": "MORE", "less": "less: commit it", "new": "not committed"}
    assert compared(found, committed, 0.02) == told
