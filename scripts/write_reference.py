"""Writes the tables of docs/network-file.md: the fields of the network file, as the code that reads it asks for them.

    .venv/bin/python scripts/write_reference.py             # puts the tables into their present form
    .venv/bin/python scripts/write_reference.py --check     # only tells whether they have it

Nobody keeps a second list of fields: the readers of `overlane.network` are given tables that seem to hold all fields,
and note what they are asked for: the name, what is allowed, and what holds where the field is left out. The page keeps
the words of people: all text outside the tables, and in them the column that tells what a field is for. Where a default
is worked out elsewhere, people tell it in words, *in italics*, and such a cell is left alone.

A table begins behind the line `<!-- fields: PATH -->`, where PATH is `links`, `brokers.uplinks` and so on.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from overlane.core.units import NEVER
from overlane.network.reading import _network
from overlane.network.sections.events import HAPPENINGS
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.lines import Path as FieldPath
from overlane.network.syntax.table import Faults, Table
from overlane.quantities import SECOND, format_duration, format_rate, format_size

T = TypeVar("T")
D = TypeVar("D")

PAGE = Path(__file__).parent.parent / "docs" / "network-file.md"
HEAD = "| field | default | allowed | what |\n|---|---|---|---|\n"
REQUIRED = "required"
ONE_OF_THEM = "one of these"
NO_DEFAULT = "none"
NAMES = ("NAME", "OTHER")

_MARKED = re.compile(r"(<!-- fields: ([a-z.]+) -->\n\n?)((?:\|.*\n)*)")


@dataclass(frozen=True)
class Field:
    name: str
    allowed: tuple[str, ...]
    default: str


class Asked:
    """All fields that were asked for, by the table they are in."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Field]] = {}

    def note(self, path: FieldPath, name: str, allowed: str, default: str) -> None:
        place = ".".join(str(part) for part in path if isinstance(part, str) and part not in NAMES)
        fields = self.tables.setdefault(place, {})
        before = fields.get(name, Field(name, (), default))
        known = before.allowed if allowed in before.allowed else (*before.allowed, allowed)
        fields[name] = Field(name, known, before.default if default == NO_DEFAULT else default)


class NoFaults(Faults):
    """Whatever is wrong with a table that nobody wrote is of no interest."""

    def add(self, path: FieldPath, found: str, allowed: str, meant: str = "") -> None: ...

    def line(self, path: FieldPath) -> int:  # noqa: ARG002
        return 0


class Noting(Table):
    """A table that holds every field, or, of those that exclude each other, only `alone`."""

    def __init__(self, asked: Asked, path: FieldPath, as_tables: bool, alone: str = "") -> None:
        super().__init__(NoFaults("", ""), path, {})
        self._notes = asked
        self._as_tables = as_tables
        self._alone = alone

    def __contains__(self, field: str) -> bool:
        return field == self._alone if self._alone else True

    def required(self, field: str, kind: FieldKind[T]) -> T:
        self._notes.note(self.path, field, kind.allowed, ONE_OF_THEM if field == self._alone else REQUIRED)
        return kind.blank

    def optional(self, field: str, kind: FieldKind[T], default: D) -> T | D:
        self._notes.note(self.path, field, kind.allowed, written(kind, default))
        return default

    def many(self, field: str, kind: FieldKind[T]) -> tuple[T, ...]:
        self._notes.note(self.path, field, f"a list, each {kind.allowed}", NO_DEFAULT)
        return ()

    def is_table(self, field: str) -> bool:  # noqa: ARG002
        return self._as_tables

    def refuse(self, field: str, allowed: str, meant: str = "") -> None: ...

    def table(self, field: str) -> "Noting":
        if self.path:
            self._notes.note(self.path, field, "a table", NO_DEFAULT)
        return Noting(self._notes, (*self.path, field), self._as_tables)

    def named_tables(self, field: str) -> Iterator[tuple[str, Table]]:
        for name in NAMES:
            yield name, Noting(self._notes, (*self.path, field, name), self._as_tables)

    def tables(self, field: str) -> Iterator[Table]:
        for alone in HAPPENINGS if field == "events" else ("",):
            yield Noting(self._notes, (*self.path, field), self._as_tables, alone)

    def close(self) -> None: ...


def written(kind: FieldKind[T], value: object) -> str:
    """The value as somebody would write it in the file: what is read as this very value."""
    if value is None or value == NEVER:
        return NO_DEFAULT
    candidates: list[tuple[object, str]] = [("none", '`"none"`')]
    if isinstance(value, bool):
        candidates = [(value, f"`{str(value).lower()}`")]
    elif isinstance(value, int):
        texts = [format_duration(value), format_duration(value * SECOND), format_size(value), format_rate(value)]
        candidates = [*candidates, *((text, f'`"{text}"`') for text in texts), (value, f"`{value}`")]
    elif isinstance(value, float):
        candidates = [(value, f"`{value:g}`")]
    elif isinstance(value, str):
        candidates = [(value, f'`"{value}"`')]
    for candidate, shown in candidates:
        try:
            if kind.read(candidate) == value:
                return shown
        except ValueError:
            continue
    raise AssertionError(f"{value!r} cannot be written so that it is {kind.allowed}")


def fields_of_the_file() -> dict[str, dict[str, Field]]:
    asked = Asked()
    for as_tables in (False, True):
        _network(Noting(asked, (), as_tables), None)
    return asked.tables


def rewritten(page: str) -> tuple[str, list[str]]:
    """The page with its tables as they should be, and what only people can put right."""
    asked = fields_of_the_file()
    shown: set[str] = set()
    lacking: list[str] = []

    def table(match: re.Match[str]) -> str:
        place = match[2]
        shown.add(place)
        if place not in asked:
            lacking.append(f"there is no table {place} in a network file")
            return match[0]
        before = _cells(match[3])
        rows = []
        for field in asked[place].values():
            old = before.get(field.name, [])
            what = old[-1] if old else ""
            if not what:
                lacking.append(f"what {place}.{field.name} is for is not said")
            default = old[1] if len(old) > 1 and old[1].startswith("*") else field.default
            allowed = ", or ".join(text.replace("|", "\\|") for text in field.allowed)
            rows.append(f"| `{field.name}` | {default} | {allowed} | {what} |\n")
        return f"<!-- fields: {place} -->\n\n{HEAD}{''.join(rows)}"

    text = _MARKED.sub(table, page)
    lacking += [f"the fields of {place} are not shown" for place in asked if place not in shown and place]
    return text, lacking


def _cells(rows: str) -> dict[str, list[str]]:
    """The cells of each row by the field it is of."""
    found = {}
    for row in rows.splitlines()[2:]:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        found[cells[0].strip("`")] = cells
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the tables of docs/network-file.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something would change")
    check = parser.parse_args().check
    page = PAGE.read_text(encoding="utf-8")
    text, lacking = rewritten(page)
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif text != page:
        lacking.append("docs/network-file.md is not as the code has it: run scripts/write_reference.py")
    for line in lacking:
        print(line, file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
