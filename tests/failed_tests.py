"""`--failed-to FILE`: which tests failed and whether they are slow, as JSON, for `scripts/run_tests.py`."""

import json
import re
from pathlib import Path

import pytest

_GROUP = re.compile(r"@[^\]@]*$")
"""What xdist adds to the name of a test that stays with others."""


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--failed-to", type=Path, metavar="FILE", help="write as JSON which tests failed, and whether they are slow"
    )


def write_failed(terminal: pytest.TerminalReporter, config: pytest.Config) -> None:
    file: Path | None = config.getoption("--failed-to")
    if file is not None:
        reports = [*terminal.getreports("failed"), *terminal.getreports("error")]
        failed = {_GROUP.sub("", report.nodeid): _is_slow(report) for report in reports}
        file.write_text(json.dumps(dict(sorted(failed.items()))))


def _is_slow(report: pytest.TestReport | pytest.CollectReport) -> bool:
    return isinstance(report, pytest.TestReport) and "slow" in report.keywords
