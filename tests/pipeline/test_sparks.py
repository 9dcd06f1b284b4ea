"""Tests that share a Spark are run by one process: two of them would keep each other from the cores."""

import pytest

from sparks import GROUP


@GROUP
def test_tests_that_share_a_spark_are_kept_together(request: pytest.FixtureRequest) -> None:
    is_grouped = request.config.getoption("loadgroup", default=False)
    assert request.node.nodeid.endswith("@spark") or not is_grouped
