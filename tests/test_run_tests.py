"""Slow tests that failed are tried once more, alone; what fails again has failed, and so has any other test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
CONFTEST = """
import cost_report, dead_workers, failed_tests
def pytest_addoption(parser):
    failed_tests.add_option(parser)
    cost_report.add_option(parser)
def pytest_configure(config):
    config.pluginmanager.register(cost_report.Costs())
    config.pluginmanager.register(dead_workers)
def pytest_terminal_summary(terminalreporter, config):
    failed_tests.write_failed(terminalreporter, config)
    cost_report.write_costs(terminalreporter, config)
"""
PASSES_ALONE = """
import os, pytest
@pytest.mark.slow
@pytest.mark.xdist_group("some group")
@pytest.mark.parametrize("of", ["a@b]", "::"])
def test_alone(of): assert "PYTEST_XDIST_WORKER" not in os.environ
"""


def run_tests(folder: Path, source: str, *options: str, at: Path | None = None) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_some.py").write_text(source)
    (at or folder).joinpath("pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT / 'tests'}\nmarkers = slow\n")
    command = (sys.executable, str(ROOT / "scripts" / "run_tests.py"), "-q", "-n", "2", "--dist", "loadgroup", *options)
    # This may be a process of a parallel run itself.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONDONTWRITEBYTECODE"] = ""
    return subprocess.run(command, cwd=at or folder, env=environment, capture_output=True, text=True, check=False)


def test_what_passes_alone_is_named_as_unstable(tmp_path: Path) -> None:
    done = run_tests(tmp_path, PASSES_ALONE)
    assert done.returncode == 0, done.stdout
    unstable = done.stdout.split("Unstable: failed beside other tests and passed alone:\n")[1].splitlines()
    assert unstable == ["  test_some.py::test_alone[::]", "  test_some.py::test_alone[a@b]]"]


def test_what_fails_again_has_failed(tmp_path: Path) -> None:
    done = run_tests(tmp_path, f"{PASSES_ALONE}\n@pytest.mark.slow\ndef test_never(): assert False\n")
    assert done.returncode == 1
    assert "Trying 3" in done.stdout
    assert "Unstable" not in done.stdout


def test_a_test_that_is_not_slow_has_one_try(tmp_path: Path) -> None:
    done = run_tests(tmp_path, PASSES_ALONE.replace("@pytest.mark.slow\n", ""))
    assert done.returncode == 1
    assert "Trying" not in done.stdout


def test_many_that_fail_are_not_tried_again_and_costs_are_told(tmp_path: Path) -> None:
    busy = "\ndef test_busy():\n    import time\n    while time.process_time() < 1: pass\n"
    costs = tmp_path / "costs.txt"
    done = run_tests(tmp_path, PASSES_ALONE.replace('["a@b]", "::"]', "range(6)") + busy, f"--costs-to={costs}")
    assert done.returncode == 1
    assert "Trying" not in done.stdout
    cpu_s, wall_s, tests, name = costs.read_text().splitlines()[1].split()
    assert (name, tests) == ("test_some.py", "7")
    assert 0 < float(cpu_s) <= 5
    assert float(wall_s) > 0


def test_what_cannot_be_collected_has_failed(tmp_path: Path) -> None:
    done = run_tests(tmp_path, "import nothing_of_this_name\n")
    assert done.returncode != 0
    assert "Trying" not in done.stdout


def test_a_worker_that_dies_ends_the_run_and_its_test_is_named(tmp_path: Path) -> None:
    dies = """
import os, pytest
@pytest.mark.parametrize("number", range(40))
def test_dies(number):
    if number == 7: os._exit(1)
def test_goes_on(): pass
"""
    done = run_tests(tmp_path, dies)
    assert done.returncode not in (0, 1)
    assert "crashed while running 'test_some.py::test_dies[7]'" in done.stdout
    assert "died" in done.stdout


def test_tests_of_a_fresh_clone_are_compiled_once_before_the_workers_start(tmp_path: Path) -> None:
    folder, told = tmp_path / "tests", tmp_path / "imported.txt"
    folder.mkdir()
    worker = "os.environ.get('PYTEST_XDIST_WORKER', 'one')"
    source = f"import os\nwith open({str(told)!r}, 'a') as file: print({worker}, file=file)\n"
    for by in (["gw0", "gw1", "one"], ["gw0", "gw1"]):
        told.write_text("")
        done = run_tests(folder, f"{source}def test_nothing(): pass\n", at=tmp_path)
        assert done.returncode == 0, done.stdout
        assert sorted(told.read_text().split()) == by
