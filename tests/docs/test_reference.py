"""What the documents list is all that there is."""

import re
import subprocess
import sys

from docpages import PAGES, PROJECT

from overlane.cli.main import COMMANDS


def _pages() -> str:
    return "\n".join((PROJECT / name).read_text(encoding="utf-8") for name in PAGES)


def test_the_tables_of_the_network_file_are_what_the_code_asks_for() -> None:
    script = PROJECT / "scripts" / "write_reference.py"
    run = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_every_request_of_the_admin_api_is_told_and_no_other() -> None:
    sources = "".join(file.read_text() for file in (PROJECT / "src" / "overlane" / "node").glob("*operations.py"))
    there = set(re.findall(r'Operation\(\s*"([A-Z]+)",\s*"(/[^"]*)"', sources))
    page = (PROJECT / "docs" / "admin.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `([A-Z]+) (/[^`]*)` \|", page, re.MULTILINE))
    assert told == there


def test_every_command_is_spoken_of() -> None:
    pages = _pages()
    assert [name for name in COMMANDS if f"overlane {name}" not in pages] == []


def test_every_benchmark_is_spoken_of() -> None:
    pages = _pages()
    scripts = [script.name for script in (PROJECT / "bench").glob("[!_]*.py")]
    assert [name for name in sorted(scripts) if f"bench/{name}" not in pages and f"`{name}`" not in pages] == []
