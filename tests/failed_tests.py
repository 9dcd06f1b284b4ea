"""`--failed-to FILE`: which tests failed, as JSON, for `scripts/run_tests.py`."""

import json
import re
from pathlib import Path

import pytest

_GROUP = re.compile(r"@[^\]@]*$")
"""What xdist adds to the name of a test that stays with others."""


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--failed-to", type=Path, metavar="FILE", help="write the names of tests that failed as JSON")


def write_failed(terminal: pytest.TerminalReporter, config: pytest.Config) -> None:
    file: Path | None = config.getoption("--failed-to")
    if file is not None:
        reports = [*terminal.getreports("failed"), *terminal.getreports("error")]
        file.write_text(json.dumps(sorted({_GROUP.sub("", report.nodeid) for report in reports})))
