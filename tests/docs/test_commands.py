"""Every command in the documents: it is run, here or by a test that is named, and what it names exists."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doccommands import (
    ELSEWHERE,
    GROUPS,
    Command,
    commands_in_sentences,
    commands_of,
    programs_of,
    what_is_wrong,
)
from docpages import PAGES, PROJECT, read_page
from docstage import Stage


def _run_here(name: str) -> list[Command]:
    return [command for command in commands_of(read_page(name)) if not command.elsewhere]


PAGES_WITH_COMMANDS = [name for name in PAGES if _run_here(name)]
FOREIGN = ("curl", "jq", "mosquitto_sub", "mosquitto_pub", "openssl", "sqlite3")
"""Debian's packages of these names, or mosquitto-clients; where one is missing its commands are left out."""


@pytest.mark.parametrize("name", PAGES)
def test_every_command_names_what_exists(name: str) -> None:
    page = read_page(name)
    wrong = {
        str(command): reason
        for command in (*commands_of(page), *commands_in_sentences(page))
        if (reason := what_is_wrong(command))
    }
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES_WITH_COMMANDS)
def test_the_commands_of_a_page_do_what_it_says(name: str, tmp_path: Path) -> None:
    wanted = _run_here(name)
    possible = [command for command in wanted if not _missing(command)]
    if not possible:
        pytest.skip(f"not installed: {', '.join(sorted({program for one in wanted for program in _missing(one)}))}")
    stage = Stage(tmp_path, read_page(name))
    try:
        for command in possible:
            stage.run(command)
        stage.end()
    finally:
        stage.end_at_once()


@pytest.mark.parametrize("start", ELSEWHERE)
def test_what_the_pages_leave_to_another_test_is_there(start: str) -> None:
    file, _, function = ELSEWHERE[start].partition("::")
    there = ast.parse((PROJECT / file).read_text(encoding="utf-8")).body
    assert function in [one.name for one in there if isinstance(one, ast.FunctionDef)]


def test_whatever_a_sentence_names_is_run_somewhere() -> None:
    """Whole commands are; of `overlane plan apply` in a sentence it is asked that some page runs it on something."""
    pages = [read_page(name) for name in PAGES]
    known = {start for page in pages for command in commands_of(page) for start in programs_of(command)}
    known |= {start for text in ELSEWHERE for start in programs_of(Command("", 0, text))} | {(name,) for name in GROUPS}
    spoken_of = [command for page in pages for command in commands_in_sentences(page) if not command.elsewhere]
    lost = [
        str(command)
        for command in spoken_of
        if not set(programs_of(command)) <= known and not command.text.startswith("python -m pytest")
    ]
    assert lost == []
    assert [str(one) for one in spoken_of if not programs_of(one) and "python -m pytest" not in one.text] == []


@pytest.mark.slow
def test_the_story_in_the_readme_is_what_the_simulator_tells() -> None:
    blocks = read_page("README.md").blocks
    shown = next(block.lines for block in blocks if "Timeline" in block.lines)
    command = [sys.executable, "-m", "overlane", "simulate", "examples/five-cities.toml"]
    told = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.splitlines()
    missing = [line for line in shown if line.strip() != "..." and not any(one.startswith(line) for one in told)]
    assert missing == []


def _missing(command: Command) -> list[str]:
    return [program for program in FOREIGN if program in command.text.split() and shutil.which(program) is None]


def test_a_command_that_does_not_exist_is_noticed() -> None:
    for text, reason in {
        "overlane upp net.toml": "there is no command upp",
        "overlane up net.toml --no-such-option": "--no-such-option",
        "overlane plan apply": "",
        "overlane plan aply": "there is no command aply",
        "make no-such-target": "no-such-target",
        "python bench/no-such-script.py": "there is no bench/no-such-script.py",
        "python bench/scale.py --no-such-option 1": "--no-such-option",
    }.items():
        found = what_is_wrong(Command("page", 1, text))
        assert reason in found
        assert bool(reason) == bool(found), text
