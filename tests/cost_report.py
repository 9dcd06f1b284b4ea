"""`--costs-to FILE`: which test files and tests cost most: CPU and wall seconds of each, the dearest first.

CPU time is that of the process that runs the test, and of processes it started that have ended by then. Brokers that
are forked (forked.py) are children of another process: they are missing, and the wall time tells of them.
"""

import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

PROPERTY = "cpu_wall_s"
TESTS_SHOWN = 200


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--costs-to", type=Path, metavar="FILE", help="write what the test files cost, the dearest first")


class Costs:
    """Of each test, in the process that runs it. It travels with the report."""

    def __init__(self) -> None:
        self._began = 0.0, 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._began = _cpu_s(), time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: "pytest.CallInfo[None]"
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            cpu_s, wall_s = self._began
            report.user_properties.append((PROPERTY, (_cpu_s() - cpu_s, time.monotonic() - wall_s)))
        return report


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def write_costs(terminal: pytest.TerminalReporter, config: pytest.Config) -> None:
    file: Path | None = config.getoption("--costs-to")
    if file is None:
        return
    tests: list[tuple[float, float, str]] = []
    for reports in terminal.stats.values():
        for report in reports:
            found = dict(getattr(report, "user_properties", ())).get(PROPERTY)
            if found is not None:
                tests.append((*found, report.nodeid))
    files: dict[str, list[tuple[float, float, str]]] = {}
    for test in tests:
        files.setdefault(test[2].partition("::")[0], []).append(test)
    sums = [(sum(each[0] for each in of), sum(each[1] for each in of), name) for name, of in files.items()]
    lines = ["   CPU s   wall s  tests file\n"]
    lines += [f"{cpu:8.1f} {wall:8.1f} {len(files[name]):6} {name}\n" for cpu, wall, name in sorted(sums, reverse=True)]
    lines += ["\n   CPU s   wall s test\n"]
    lines += [f"{cpu:8.1f} {wall:8.1f} {name}\n" for cpu, wall, name in sorted(tests, reverse=True)[:TESTS_SHOWN]]
    file.write_text("".join(lines))
