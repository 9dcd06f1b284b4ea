"""Line numbers in a TOML text: the line of every table, key and array element.

`tomllib` reports the line of a syntax error and nothing else. This module scans a text that `tomllib` has accepted, so
it validates nothing; it only skips strings, comments and brackets. It runs only if there is an error to report.
"""

import re
import tomllib
from bisect import bisect_right
from contextlib import suppress
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^"'=\]])*""")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})'  # up to two quotes of the content may stand before the closing three
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:[^"\\]|\\.)*"'
    r"|'[^']*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}\n#]*")


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


class LineIndex:
    """Looks up the line of a path such as ("links", 2, "latency")."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._newlines = [at for at, char in enumerate(text) if char == "\n"]
        self._lines: dict[Path, int] = {(): 0}
        self._elements: dict[Path, int] = {}
        with suppress(RecursionError):  # nested beyond all sense: what was found so far has to do
            self._document()

    def __getitem__(self, path: Path) -> int:
        """The line of the path, or of the nearest thing around it that has one."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]

    def __contains__(self, path: Path) -> bool:
        return path in self._lines

    def _document(self) -> None:
        table: Path = ()
        while self._skip_blank() < len(self._text):
            start = self._at
            if self._text.startswith("[[", start):
                self._at += 2
                array = self._named(self._key(), start)
                self._at += 2
                element = self._elements.get(array, 0)
                self._elements[array] = element + 1
                table = (*array, element)
                self._note(table, start)
            elif self._text[start] == "[":
                self._at += 1
                table = self._named(self._key(), start)
                self._at += 1
            else:
                self._pair(table)

    def _pair(self, table: Path) -> None:
        start = self._at
        path = table
        for part in self._key():
            path = (*path, part)
            self._note(path, start)
        self._at += 1  # the equals sign
        self._value(path)

    def _value(self, path: Path) -> None:
        self._skip_blank()
        if string := _STRING.match(self._text, self._at):
            self._at = string.end()
            return
        match self._text[self._at]:
            case "[":
                self._array(path)
            case "{":
                self._inline_table(path)
            case _:
                self._skip(_SCALAR)

    def _array(self, path: Path) -> None:
        self._at += 1
        element = 0
        while self._text[self._skip_blank()] != "]":
            self._note((*path, element), self._at)
            self._value((*path, element))
            element += 1
            self._skip_comma()
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while self._text[self._skip_blank()] != "}":
            self._pair(path)
            self._skip_comma()
        self._at += 1

    def _key(self) -> list[str]:
        """Read a dotted key; `tomllib` itself undoes its quotes."""
        start = self._at
        nested: object = tomllib.loads(self._text[start : self._skip(_KEY)].strip() + "=0")
        parts = []
        while isinstance(nested, dict):
            ((part, nested),) = nested.items()
            parts.append(part)
        return parts

    def _named(self, parts: list[str], offset: int) -> Path:
        """The path a table's header means: a name of an array on the way stands for its latest element."""
        path: Path = ()
        for part in parts:
            if path in self._elements:
                path = (*path, self._elements[path] - 1)
            path = (*path, part)
            self._note(path, offset)
        return path

    def _note(self, path: Path, offset: int) -> None:
        self._lines.setdefault(path, bisect_right(self._newlines, offset - 1) + 1)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        if match := pattern.match(self._text, self._at):
            self._at = match.end()
        return self._at

    def _skip_blank(self) -> int:
        return self._skip(_BLANK)

    def _skip_comma(self) -> None:
        if self._text[self._skip_blank()] == ",":
            self._at += 1
