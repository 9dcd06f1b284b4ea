"""What the documents list is all that there is."""

import re
import subprocess
import sys

from docpages import PAGES, PROJECT

from overlane.cli.commands import COMMANDS


def _pages() -> str:
    return "\n".join((PROJECT / name).read_text(encoding="utf-8") for name in PAGES)


def test_the_tables_of_the_network_file_are_what_the_code_asks_for() -> None:
    script = PROJECT / "scripts" / "write_reference.py"
    run = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_every_request_of_the_admin_api_is_told_and_no_other() -> None:
    sources = "".join(file.read_text() for file in (PROJECT / "src" / "overlane" / "node").rglob("*operations.py"))
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


WORDS = (
    *("domain", "broker", "link", "topic", "deadline", "parcel", "route", "path", "budget", "laxity"),
    *("item", "primary", "mirror", "channel", "reservation"),
)


def test_every_word_of_the_overlay_is_explained_once() -> None:
    page = (PROJECT / "docs" / "concepts.md").read_text(encoding="utf-8")
    explained = [
        word for term in re.findall(r"^\*\*([^*]+)\.\*\*", page, re.MULTILINE) for word in term.lower().split(", ")
    ]
    assert [word for word in WORDS if explained.count(word) != 1] == []


def test_operators_are_told_of_upgrade_backup_certificates_and_limits() -> None:
    page = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert {"Upgrade", "Backup", "Certificates", "Limits"} <= set(re.findall(r"^## (.*)$", page, re.MULTILINE))


def test_the_readme_shows_the_map_and_the_story() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\((\S+)\)", (PROJECT / "README.md").read_text(encoding="utf-8"))
    assert pictures[:2] == ["docs/images/monitor.png", "docs/images/demo.svg"]


def test_every_figure_of_the_benchmarks_has_the_command_that_printed_it() -> None:
    page = (PROJECT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    sections = re.split(r"^#{2,3} (.*)$", page, flags=re.MULTILINE)[1:]
    with_figures = {title: text for title, text in zip(sections[::2], sections[1::2], strict=True) if "\n|" in text}
    assert with_figures
    assert [title for title, text in with_figures.items() if "`python bench/" not in text] == []
