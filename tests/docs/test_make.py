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

FOLDERS = "src tests bench scripts"
CHECKED = [
    f".venv/bin/ruff format --check --quiet {FOLDERS}",
    f".venv/bin/ruff check --quiet {FOLDERS}",
    ".venv/bin/python -m mypy",
    f".venv/bin/python -m compileall -q {FOLDERS}",
]
TESTED = ".venv/bin/python -m pytest"
"""And how, which is not said here but for what is left out."""
RUN: dict[str, list[str]] = {
    "make help": [],
    "make setup": ["scripts/setup test"],
    "make demo": ["scripts/setup demo", ".venv/bin/overlane demo"],
    "make demo STAY=1": ["scripts/setup demo", ".venv/bin/overlane demo --stay"],
    "make check": ["scripts/setup test", *CHECKED, f"{TESTED} -m not slow"],
    "make test": ["scripts/setup test", *CHECKED, TESTED],
    "make format": ["scripts/setup test", f".venv/bin/ruff check --fix {FOLDERS}", f".venv/bin/ruff format {FOLDERS}"],
    "make bench": [
        "scripts/setup test",
        *(f".venv/bin/python bench/{one.name}" for one in sorted((PROJECT / "bench").glob("[!_]*.py"))),
    ],
}
STAND_IN = '#!/bin/sh\necho "$0" "$@" >> run.txt\n'


_HOW = re.compile(rf"^{re.escape(TESTED)}( -q| -n \d+| --dist loadgroup| --no-loadscope-reorder)+")


def outside() -> dict[str, str]:
    """The environment without what a make tells those that it starts: this may be a part of `make test`."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "STAY"))}


def test_every_target_in_the_documents_is_made_here() -> None:
    pages = [read_page(name) for name in PAGES]
    told = {one.text for page in pages for one in (*commands_of(page), *commands_in_sentences(page))}
    assert {text for text in told if text.startswith("make ")} == set(RUN)


@pytest.mark.parametrize("command", RUN)
def test_a_target_runs_what_it_says(command: str, tmp_path: Path) -> None:
    for name in ("Makefile", "scripts/check-code", "scripts/run-benchmarks"):
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
    done = subprocess.run(command.split(), cwd=tmp_path, env=outside(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ran = [_HOW.sub(TESTED, line) for line in (tmp_path / "run.txt").read_text().splitlines()]
    assert ran == RUN[command]


def test_help_lists_every_target(tmp_path: Path) -> None:
    shutil.copy(PROJECT / "Makefile", tmp_path)
    command = ["make", "help"]
    told = subprocess.run(command, cwd=tmp_path, env=outside(), capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    assert re.findall(r"^  make (\S+) ", told, re.MULTILINE) == targets
