"""Showing what brokers answered: as a table, as JSON, once or every second.

Exit status of the commands: 0 somebody answered, 1 nobody did, 2 the file, the address or the token is wrong.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Generic, NamedTuple, TypeVar

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from overlane.cli.asking import DEFAULT, Audience, Outcome, ask, audience, reasons
from overlane.cli.faults import told
from overlane.node.views import View

NOBODY = 1
EVERY_S = 1.0
PLAIN_WIDTH = 1_000
"""Where the output is no terminal lines are as long as they are: programs cut them better."""

Given = TypeVar("Given", bound=View)

Target = Annotated[
    str, typer.Argument(metavar="ADDRESS|NETWORK.toml", help="A broker's admin address, or a file: all its brokers.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answers as JSON; with --watch one line each time.")]
Watch = Annotated[bool, typer.Option("--watch", help="Ask again every second, until Ctrl-C.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="A file with the admin token, if not that of the network file.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="At most so many of each broker.")]


class Round(NamedTuple, Generic[Given]):
    """What was answered now, and by whom of these a while before."""

    outcomes: Sequence[Outcome[Given]]
    before: dict[str, Given]
    elapsed_s: float

    @property
    def answers(self) -> list[tuple[str, Given]]:
        return [(one.name, one.answer) for one in self.outcomes if one.answer is not None]


Show = Callable[[Round[Given]], RenderableType]


class Question(NamedTuple, Generic[Given]):
    path: str
    parameters: dict[str, str | int]
    kind: type[Given]
    show: Show[Given]


def run(
    question: Question[Given],
    target: str = DEFAULT,
    as_json: bool = False,
    watch: bool = False,
    token_file: Path | None = None,
) -> None:
    """Ask and show, as the options of a command say."""
    with told():
        asked = audience(target, token_file)
    if watch:
        try:
            _watch(question, asked, as_json)
        except KeyboardInterrupt:
            return
    outcomes = ask(asked, question.path, question.parameters, question.kind)
    if as_json:
        typer.echo(_json(outcomes))
    if not any(one.answer is not None for one in outcomes):
        typer.echo(reasons(outcomes), err=True)
        raise typer.Exit(NOBODY)
    if not as_json:
        _console().print(_shown(question, Round(outcomes, {}, 0.0)))


def _watch(question: Question[Given], asked: Audience, as_json: bool) -> None:
    console = _console()
    before: dict[str, Given] = {}
    asked_s = 0.0
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            began_s = time.monotonic()
            outcomes = ask(asked, question.path, question.parameters, question.kind)
            now = Round(outcomes, before, began_s - asked_s)
            if as_json:
                typer.echo(_json(outcomes))
            elif console.is_terminal:
                live.update(_shown(question, now), refresh=True)
            else:
                console.print(_shown(question, now))
                console.print()
            before, asked_s = dict(now.answers), began_s
            time.sleep(max(0.0, EVERY_S - (time.monotonic() - began_s)))


def _shown(question: Question[Given], now: Round[Given]) -> RenderableType:
    silent = [one for one in now.outcomes if one.answer is None]
    lines = [f"[red]{escape(one.name)} does not answer:[/] {escape(one.reason)}" for one in silent]
    return Group(question.show(now), *lines)


def _json(outcomes: Sequence[Outcome[Given]]) -> bytes:
    brokers = [
        {"broker": one.place.name, "address": str(one.place.endpoint)}
        | ({"answer": one.answer} if one.answer is not None else {"error": one.reason})
        for one in outcomes
    ]
    return msgspec.json.encode({"brokers": brokers})


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


# For the tables


def table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    """Columns by their names; those of numbers are to the right."""
    made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    return made


def count(number: float) -> str:
    """With thousands apart, as they are read most easily."""
    return f"{number:,.0f}".replace(",", " ")


def size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024 or unit == "GiB":
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    raise AssertionError


def span(duration_s: float) -> str:
    """About how long: the largest unit, and where it is small a part of it."""
    for unit, in_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if duration_s >= in_s:
            return f"{duration_s / in_s:.1f} {unit}"
    return f"{duration_s:.0f} s"


def milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
