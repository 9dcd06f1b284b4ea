"""Every command in the documents: it is run where that is possible, and what it names exists."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doccommands import Command, commands_in_sentences, commands_of, what_is_wrong
from docpages import PAGES, PROJECT, read_page
from docstage import Stage

PAGES_WITH_COMMANDS = [name for name in PAGES if any(command.why_not == "" for command in commands_of(read_page(name)))]
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
    page = read_page(name)
    wanted = [command for command in commands_of(page) if command.why_not == ""]
    possible = [command for command in wanted if not _missing(command)]
    if not possible:
        pytest.skip(f"not installed: {', '.join(sorted({program for one in wanted for program in _missing(one)}))}")
    stage = Stage(tmp_path, page)
    try:
        for command in possible:
            stage.run(command)
        stage.end()
    finally:
        stage.end_at_once()


@pytest.mark.slow
def test_the_story_in_the_readme_is_what_the_simulator_tells() -> None:
    blocks = read_page("README.md").blocks
    shown = next(block.lines for block in blocks if "What happened" in block.lines)
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
