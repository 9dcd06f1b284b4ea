"""What scripts/newcomer.py types is what the pages say: every command, word for word and in their order."""

import runpy
import subprocess
import sys
from typing import Any

import pytest
from doccommands import command_in
from docpages import PROJECT, read_page

SCRIPT = PROJECT / "scripts" / "newcomer.py"
NAMES = runpy.run_path(str(SCRIPT))
MACHINE = runpy.run_path(str(PROJECT / "scripts" / "newcomer_machine.py"))


@pytest.mark.parametrize("name", NAMES["PAGES"])
def test_every_command_and_every_file_of_the_pages_is_a_step(name: str) -> None:
    wanted = []
    for block in read_page(name).blocks:
        if "file" in block.notes:
            wanted.append(f"save {block.notes['file']}")
        if block.language in ("sh", "console"):
            found = [command_in(block.language, line) for line in block.lines]
            wanted += [command for command in found if command is not None]
    assert [step["text"] for step in NAMES["steps_of"](name)] == wanted
    assert len(wanted) > 5


def test_what_is_shown_below_a_command_has_to_come_but_for_digits_and_spaces() -> None:
    steps: list[dict[str, Any]] = NAMES["steps_of"]("docs/getting-started.md")
    up = next(step for step in steps if step["text"].startswith("overlane up"))
    assert up["goes_on"]
    assert up["shown"][-1] == "ready"
    said = "broker  mqtt  overlay  admin\nseattle 127.0.0.1:1 127.0.0.1:2 127.0.0.1:3\n"
    assert MACHINE["missing"](up["shown"], said) == [*up["shown"][2:]]


def test_the_commands_are_listed_without_the_tests_which_take_long() -> None:
    command = [sys.executable, str(SCRIPT), "--list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert ": make demo\n" in listed
    assert ": make test\n" not in listed
