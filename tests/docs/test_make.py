"""The targets of the Makefile, as the documents name them: each is made, with stand-ins for the programs it starts.

The programs themselves are run by other tests, or are this run.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from doccommands import commands_in_sentences, commands_of
from docpages import PAGES, PROJECT, read_page

FOLDERS = "src tests bench scripts hatch_build.py"
PREPARED = ["scripts/setup test", f".venv/bin/python -m compileall -q {FOLDERS}"]
CHECKED = [
    f".venv/bin/ruff format --check --quiet {FOLDERS}",
    f".venv/bin/ruff check --quiet {FOLDERS}",
    ".venv/bin/python -m mypy",
]
"""Beside the tests."""
TESTED = ".venv/bin/python scripts/run_tests.py"
"""And how, which is not said here but for what is left out."""
RUN: dict[str, list[str]] = {
    "make help": [],
    "make setup": ["scripts/setup test"],
    "make demo": ["scripts/setup demo", ".venv/bin/overlane demo"],
    "make demo STAY=1": ["scripts/setup demo", ".venv/bin/overlane demo --stay"],
    "make check": [*PREPARED, *CHECKED, f"{TESTED} --hypothesis-profile quick -m not slow"],
    "make test": [*PREPARED, *CHECKED, TESTED],
    "make format": ["scripts/setup test", f".venv/bin/ruff check --fix {FOLDERS}", f".venv/bin/ruff format {FOLDERS}"],
    "make bench": [
        "scripts/setup test",
        *(f".venv/bin/python bench/{one.name}" for one in sorted((PROJECT / "bench").glob("[!_]*.py"))),
    ],
}
STAND_IN = '#!/bin/sh\necho "$0" "$@" >> run.txt\n'
FAILS = STAND_IN + 'case "$*" in {}*) echo "found something"; exit 1; esac\n'


_HOW = re.compile(rf"^{re.escape(TESTED)}( -q| -n \d+| --dist loadgroup| --no-loadscope-reorder)+")


def outside() -> dict[str, str]:
    """The environment without what a make tells those that it starts: this may be a part of `make test`."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "STAY"))}


def test_every_target_in_the_documents_is_made_here() -> None:
    pages = [read_page(name) for name in PAGES]
    told = {one.text for page in pages for one in (*commands_of(page), *commands_in_sentences(page))}
    assert {text for text in told if text.startswith("make ")} == set(RUN)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The Makefile and its scripts, with stand-ins for all else."""
    for name in ("Makefile", "scripts/check-and-test", "scripts/check-code", "scripts/run-benchmarks"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    (tmp_path / "bench").mkdir()
    for script in (PROJECT / "bench").glob("*.py"):
        (tmp_path / "bench" / script.name).touch()
    for name in ("scripts/setup", ".venv/bin/python", ".venv/bin/ruff", ".venv/bin/overlane"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(STAND_IN)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "run.txt").touch()
    return tmp_path


def made(project: Path, command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command.split(), cwd=project, env=outside(), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", RUN)
def test_a_target_runs_what_it_says(command: str, project: Path) -> None:
    done = made(project, command)
    assert done.returncode == 0, done.stderr
    ran = [_HOW.sub(TESTED, line) for line in (project / "run.txt").read_text().splitlines()]
    if PREPARED[-1] in RUN[command]:  # then the tests beside the checks, in any order
        assert ran[: len(PREPARED)] == PREPARED
        assert sorted(ran) == sorted(RUN[command])
    else:
        assert ran == RUN[command]


@pytest.mark.parametrize(
    ("program", "what"),
    [("ruff", "format"), ("ruff", "check"), ("python", "-m mypy"), ("python", "scripts/run_tests.py")],
)
def test_each_check_and_the_tests_make_the_target_fail(program: str, what: str, project: Path) -> None:
    (project / ".venv" / "bin" / program).write_text(FAILS.format(what.replace(" ", "\\ ")))
    done = made(project, "make check")
    assert done.returncode != 0
    assert "found something" in done.stdout + done.stderr


def test_help_lists_every_target(tmp_path: Path) -> None:
    shutil.copy(PROJECT / "Makefile", tmp_path)
    command = ["make", "help"]
    told = subprocess.run(command, cwd=tmp_path, env=outside(), capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    assert re.findall(r"^  make (\S+) ", told, re.MULTILINE) == targets
