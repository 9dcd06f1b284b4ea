"""Tables of commands: all columns where the output has room for them, otherwise the most important ones.

A terminal of 80 columns is too narrow for what some commands can show. A table therefore knows which columns to leave
out first, and names below itself those that it left out. `--wide` shows all of them, on lines of any length. So does
output that is not a terminal: programs get every column, and one line per row.
"""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

ANY_WIDTH = 1_000
"""Lines are not wrapped if the output is not a terminal, nor with --wide."""
LINE_WIDTH = 40
"""A longer cell is wrapped rather than other columns left out for it."""
WRAPPED_WIDTH = 20
"""The same for cells that contain lists or sentences."""
BETWEEN = 2
"""Spaces between columns."""

Wide = Annotated[bool, typer.Option("--wide", help="Show all columns, on lines of any length.")]


class OutputConsole(Console):
    """Standard output. `is_wide`: with --wide. `is_redrawn`: by --watch, which wraps lines itself to know how many."""

    def __init__(self, is_wide: bool = False, is_redrawn: bool = False) -> None:
        super().__init__(highlight=False)
        self.is_wide = is_wide
        if not self.is_terminal or (is_wide and not is_redrawn):
            self.width = ANY_WIDTH


class FittedTable:
    """Leaves out columns, the first of `dropped_first` first, until the rows fit the output. Cells are markup."""

    def __init__(
        self, columns: Sequence[str], numbers: Sequence[str], dropped_first: Sequence[str], wrapped: Sequence[str]
    ) -> None:
        self._columns = tuple(columns)
        self._numbers = frozenset(numbers)
        self._dropped_first = tuple(dropped_first)
        self._wrapped = frozenset(wrapped)
        self._rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_wide = isinstance(console, OutputConsole) and console.is_wide
        dropped = [] if is_wide else self._dropped(options.max_width)
        shown = [(place, name) for place, name in enumerate(self._columns) if name not in dropped]
        made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, BETWEEN, 0, 0))
        for _, name in shown:
            made.add_column(name, justify="right" if name in self._numbers else "left", overflow="fold")
        for row in self._rows:
            made.add_row(*(row[place] for place, _ in shown))
        yield made
        if dropped:
            hidden = [name for name in self._columns if name in dropped]
            yield f"[dim]not shown: {', '.join(hidden)} (--wide)[/]"

    def _dropped(self, width: int) -> list[str]:
        widths = {name: self._width(place) for place, name in enumerate(self._columns)}
        dropped: list[str] = []
        while sum(widths.values()) - BETWEEN > width and len(dropped) < len(self._dropped_first):
            dropped.append(self._dropped_first[len(dropped)])
            del widths[dropped[-1]]
        return dropped

    def _width(self, place: int) -> int:
        name = self._columns[place]
        longest = max(cell_len(name), *(Text.from_markup(row[place]).cell_len for row in self._rows), 0)
        return min(longest, WRAPPED_WIDTH if name in self._wrapped else LINE_WIDTH) + BETWEEN


def table(
    *columns: str, numbers: Sequence[str] = (), dropped_first: Sequence[str] = (), wrapped: Sequence[str] = ()
) -> FittedTable:
    """Columns by name. Those in `numbers` are aligned right; those in `wrapped` contain lists or sentences."""
    return FittedTable(columns, numbers, dropped_first, wrapped)


def count(number: float) -> str:
    """With a space between thousands."""
    return f"{number:,.0f}".replace(",", " ")


def size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024 or unit == "GiB":
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    raise AssertionError


def span(duration_s: float) -> str:
    """Rounded, in the largest unit that fits."""
    for unit, in_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if duration_s >= in_s:
            return f"{duration_s / in_s:.1f} {unit}"
    return f"{duration_s:.0f} s"


def milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
