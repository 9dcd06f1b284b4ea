"""One table of a network file while it is read, and the errors found so far.

Every field is requested by name and kind. A missing or invalid value becomes an error and a blank value; fields that
remain when the table is closed are unknown. So one pass reports all errors.
"""

import datetime
import json
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import TypeVar

from overlane.errors import ConfigError, Fault
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.lines import LineIndex, Path

T = TypeVar("T")
D = TypeVar("D")

FOUND_CHARS_MAX = 60
INTEGER_SHOWN_MAX = 10**20
NOTHING = "nothing"


class Faults:
    """Collects what is wrong with one file, each with its line."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._text = text
        self._index: LineIndex | None = None
        self._faults: list[Fault] = []

    def add(self, path: Path, found: str, allowed: str, meant: str = "") -> None:
        self._faults.append(Fault(self._file, self.line(path), show_path(path), found, allowed, meant))

    def line(self, path: Path) -> int:
        if self._index is None:
            self._index = LineIndex(self._text)
        return self._index[path]

    def raise_if_any(self) -> None:
        if self._faults:
            raise ConfigError(self._faults)


class Table:
    """A table at `path`, read field by field."""

    def __init__(self, faults: Faults, path: Path, values: Mapping[str, object]) -> None:
        self.faults = faults
        self.path = path
        self._values = values
        self._asked: list[str] = []

    def __contains__(self, field: str) -> bool:
        return field in self._values

    def required(self, field: str, kind: FieldKind[T]) -> T:
        if field not in self._values:
            self.faults.add((*self.path, field), NOTHING, kind.allowed)
        return self.optional(field, kind, kind.blank)

    def optional(self, field: str, kind: FieldKind[T], default: D) -> T | D:
        self._asked.append(field)
        if field not in self._values:
            return default
        value = self._values[field]
        try:
            return kind.read(value)
        except ValueError:
            self.refuse(field, kind.allowed, _meant(value, kind.words))
            return default

    def many(self, field: str, kind: FieldKind[T]) -> tuple[T, ...]:
        """The elements of the list under this name, each of the kind; none where there is no list."""
        self._asked.append(field)
        values = self._values.get(field, [])
        if not isinstance(values, list):
            self.refuse(field, f"a list, each {kind.allowed}")
            return ()
        good = []
        for index, value in enumerate(values):
            try:
                good.append(kind.read(value))
            except ValueError:
                meant = _meant(value, kind.words)
                self.faults.add((*self.path, field, index), show(value), kind.allowed, meant)
        return tuple(good)

    def given(self, field: str) -> object:
        """The value as it stands in the file, unchecked; None where there is none."""
        return self._values.get(field)

    def is_table(self, field: str) -> bool:
        return isinstance(self._values.get(field), dict)

    def refuse(self, field: str, allowed: str, meant: str = "") -> None:
        """Report the value of a field as one that is not allowed here."""
        self.faults.add((*self.path, field), show(self._values[field]), allowed, meant)

    def table(self, field: str) -> "Table":
        """The table under this name, an empty one where there is none."""
        self._asked.append(field)
        values = self._values.get(field, {})
        if not isinstance(values, dict):
            self.refuse(field, "a table")
            values = {}
        return Table(self.faults, (*self.path, field), values)

    def named_tables(self, field: str) -> Iterator[tuple[str, "Table"]]:
        """The tables in the table under this name: [field.NAME]."""
        outer = self.table(field)
        for name in outer._values:
            yield name, outer.table(name)

    def tables(self, field: str) -> Iterator["Table"]:
        """The tables of the array under this name: [[field]]."""
        self._asked.append(field)
        values = self._values.get(field, [])
        if not isinstance(values, list):
            self.refuse(field, f"an array of tables, [[{field}]]")
            values = []
        for index, element in enumerate(values):
            path = (*self.path, field, index)
            if isinstance(element, dict):
                yield Table(self.faults, path, element)
            else:
                self.faults.add(path, show(element), "a table")

    def close(self) -> None:
        """Report every unknown field."""
        for field in self._values:
            if field not in self._asked:
                close = get_close_matches(field, self._asked, n=1)
                kind = "table" if isinstance(self._values[field], dict | list) and not self.path else "field"
                allowed = ", ".join(sorted(self._asked))
                self.faults.add((*self.path, field), f"an unknown {kind}", allowed, *close)


def show(value: object) -> str:
    """A value as it would stand in the file, cut short."""
    match value:
        case bool():
            shown = "true" if value else "false"
        case int() if abs(value) > INTEGER_SHOWN_MAX:
            shown = "a huge number"
        case str():
            shown = _printable(json.dumps(value[:FOUND_CHARS_MAX], ensure_ascii=False))
        case list():
            elements = ("[...]" if isinstance(element, list) else show(element) for element in value[:FOUND_CHARS_MAX])
            shown = f"[{', '.join(elements)}]"
        case dict():
            shown = "a table"
        case datetime.datetime() | datetime.date() | datetime.time():
            shown = value.isoformat()
        case _:
            shown = str(value)
    return shown if len(shown) <= FOUND_CHARS_MAX else f"{shown[:FOUND_CHARS_MAX]}..."


def show_path(path: Path) -> str:
    """A path as people write it: links[0].latency, topics."alarms/#".deadline."""
    parts = []
    for part in path:
        if isinstance(part, int):
            parts.append(f"[{part}]")
        else:
            bare = part.isascii() and part.replace("-", "_").isidentifier()
            parts.append(f"{'.' if parts else ''}{part if bare else show(part)}")
    return "".join(parts)


def _meant(value: object, words: Collection[str]) -> str:
    """What the misspelt words in the value probably mean."""
    found = value if isinstance(value, list) else [value]
    wrong = [word for word in found if isinstance(word, str) and word not in words]
    close = [get_close_matches(word[:FOUND_CHARS_MAX], words, n=1) for word in wrong]
    return " and ".join(f'"{match[0]}"' for match in close if match)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
