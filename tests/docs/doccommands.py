"""The commands in a page, and whether what they name exists.

A line is a command if it stands in a `console` block behind `$`, in a `sh` block, or, in blocks that do not say what
they are, if it begins with the name of a program that the documents use. What is too large to run here is not run, but
its names are checked: the command and all its options against the parser of `overlane`, targets against the Makefile,
scripts and their options against the files. The same holds for commands in the midst of a sentence.
"""

import re
import shlex
from dataclasses import dataclass, replace
from typing import Any

import typer
from docpages import PROJECT, Block, Page

from overlane.cli.main import app

PROGRAMS = (
    *(
        "overlane",
        "make",
        "python",
        "sudo",
        "pip",
        "apt-get",
        "curl",
        "mosquitto_sub",
        "mosquitto_pub",
        "sensors",
        "pass",
    ),
    *(".", ".venv/bin/overlane", ".venv/bin/python", "openssl", "sqlite3"),
)

NAMES_ONLY = {
    ". .venv/bin/activate": "it is active",
    "overlane broker net.toml --telemetry s3:": "there is no such store here",
    "make": "it would run everything, this test included",
    "sudo": "it needs root",
    "pip": "it would change the installation",
    "apt-get": "it would change the machine",
    "overlane pipeline": "tests/pipeline runs such commands on Spark",
    "overlane plan allocate tables": "it is of a run of the pipeline",
    "overlane demo": "tests/demo plays it",
    "python bench/": "it takes minutes",
    "python tests/": "it takes minutes",
    "python scripts/": "what it needs is not in the project",
    "python -m pytest": "it would run this test",
}
"""What commands that begin like this are not run for."""


@dataclass(frozen=True)
class Command:
    page: str
    line: int
    text: str
    types: str = ""
    shows: str = ""
    why_not: str = ""
    """Why only its names are checked; empty if it is run."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def commands_of(page: Page) -> list[Command]:
    return [command for block in page.blocks for command in _commands_in(page, block)]


def _commands_in(page: Page, block: Block) -> list[Command]:
    note = block.notes.get("test", "")
    types = note.removeprefix("types ") if note.startswith("types ") else ""
    names_only = note.removeprefix("names only: ") if note.startswith("names only: ") else ""
    found = []
    for number, line in enumerate(block.lines, block.line + (block.language is not None)):
        if (text := _command(block.language, line)) is not None:
            text = re.sub(r"\.venv/bin/(overlane|python)", r"\1", text)
            why = names_only or next((why for start, why in NAMES_ONLY.items() if _begins(text, start)), "")
            found.append(Command(page.name, number, text, types, why_not=why))
    if note.startswith("shows ") and found:
        found[-1] = replace(found[-1], shows=note.removeprefix("shows "))
    return found


def _command(language: str | None, line: str) -> str | None:
    line = re.sub(r"\s+# .*", "", line).strip()
    match language:
        case "console":
            return line[2:] if line.startswith("$ ") else None
        case "sh":
            return line or None
        case None | "":
            return line if line.split(" ")[0] in PROGRAMS else None
        case _:
            return None


def _begins(text: str, start: str) -> bool:
    return text.startswith(start) and (start.endswith(("/", ":", "tables")) or text[len(start) :][:1] in ("", " "))


def commands_in_sentences(page: Page) -> list[Command]:
    """A command is named in a sentence if there is more than its bare name."""
    return [
        Command(page.name, line, code, why_not="it stands in a sentence")
        for line, code in page.inline()
        if re.match(r"(overlane [a-z]|make [a-z]|(\.venv/bin/)?python (bench|tests|scripts)/)", code)
    ]


def what_is_wrong(command: Command) -> str:
    """Empty if every name in it is one of something; otherwise what is not."""
    words = shlex.split(command.text.replace(".venv/bin/", "").partition(" | ")[0].partition(" > ")[0])
    while words and (words[0] == "sudo" or "=" in words[0]):
        words = words[1:]
    match words:
        case ["overlane", *rest]:
            return _wrong_in_overlane(rest)
        case ["make", *targets]:
            makefile = (PROJECT / "Makefile").read_text()
            missing = [word for word in targets if "=" not in word and f"\n{word}:" not in makefile]
            return f"the Makefile has no {missing}" if missing else ""
        case ["python", script, *rest] if script.endswith(".py"):
            return _wrong_in_script(script, rest)
        case _:
            return ""


def _wrong_in_overlane(words: list[str]) -> str:
    """Asks the parser that the command line itself uses; values are not looked at, so that FILE may stand for one."""
    command: Any = typer.main.get_command(app)
    context = command.context_class(command, info_name="overlane")
    while hasattr(command, "list_commands") and words and re.fullmatch(r"[a-z][a-z|-]*", words[0]):
        names, *words = words
        for name in names.split("|"):
            inner = command.get_command(context, name)
            if inner is None:
                return f"there is no command {name}"
        command, context = inner, command.context_class(inner, info_name=name, parent=context)
    if hasattr(command, "list_commands"):
        return f"{words[0]} is no command" if words and not words[0].startswith(("-", "…", ".")) else ""
    words = [word for word in words if word not in ("…", "...")]
    if words and words[-1].startswith("--"):
        words = [*words, "VALUE"]  # an option may be spoken of without one
    try:
        command.make_parser(context).parse_args(words)
    except Exception as refused:  # of whichever library reads the command line
        return str(refused) or type(refused).__name__
    return ""


def _wrong_in_script(script: str, words: list[str]) -> str:
    path = PROJECT / script
    if not path.exists():
        return f"there is no {script}"
    sources = path.read_text() + "".join(file.read_text() for file in path.parent.glob("_*.py"))
    unknown = [word for word in words if word.startswith("--") and f'"{word.partition("=")[0]}"' not in sources]
    return f"{script} has no {unknown}" if unknown else ""
