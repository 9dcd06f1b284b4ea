"""Output of the commands that query brokers: as a table or JSON, once or every second.

Exit status: 0 at least one broker answered, 1 none did, 2 the file, the address or the token is invalid.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Generic, NamedTuple, TypeVar

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape

from overlane.adminapi.views import View
from overlane.cli.admin.admin_client import DEFAULT, Response, Targets, error_lines, get_all, targets_of
from overlane.cli.exit_status import exit_on_error
from overlane.cli.tables import OutputConsole

NO_ANSWER = 1
EVERY_S = 1.0

Body = TypeVar("Body", bound=View)

Target = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS|NETWORK.toml", help="Admin address of a broker, or a network file for all its brokers."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; with --watch, one line per poll.")]
Watch = Annotated[bool, typer.Option("--watch", help="Refresh every second until Ctrl-C.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File with the admin token (default: that of the network file).")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="Maximum number of rows per broker.")]


class QueryResult(NamedTuple, Generic[Body]):
    """The responses of one poll, and by broker those of the previous poll, `elapsed_s` earlier."""

    responses: Sequence[Response[Body]]
    previous: dict[str, Body]
    elapsed_s: float

    @property
    def answers(self) -> list[tuple[str, Body]]:
        """By broker name, those that answered."""
        return [(one.name, one.body) for one in self.responses if one.body is not None]


Render = Callable[[QueryResult[Body]], RenderableType]


class Query(NamedTuple, Generic[Body]):
    path: str
    parameters: dict[str, str | int]
    kind: type[Body]
    render: Render[Body]


def run_query(
    query: Query[Body],
    target: str = DEFAULT,
    as_json: bool = False,
    watch: bool = False,
    token_file: Path | None = None,
    wide: bool = False,
) -> None:
    """Query brokers and print the result, as the options of a command say."""
    with exit_on_error():
        targets = targets_of(target, token_file)
    if watch:
        try:
            _watch(query, targets, as_json, wide)
        except KeyboardInterrupt:
            return
    responses = get_all(targets, query.path, query.parameters, query.kind)
    if as_json:
        typer.echo(_json(responses))
    if not any(one.body is not None for one in responses):
        typer.echo(error_lines(responses), err=True)
        raise typer.Exit(NO_ANSWER)
    if not as_json:
        OutputConsole(wide).print(_rendered(query, QueryResult(responses, {}, 0.0)))


def _watch(query: Query[Body], targets: Targets, as_json: bool, wide: bool) -> None:
    console = OutputConsole(wide, is_redrawn=True)
    previous: dict[str, Body] = {}
    previous_s = 0.0
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            began_s = time.monotonic()
            responses = get_all(targets, query.path, query.parameters, query.kind)
            now = QueryResult(responses, previous, began_s - previous_s)
            if as_json:
                typer.echo(_json(responses))
            elif console.is_terminal:
                live.update(_rendered(query, now), refresh=True)
            else:
                console.print(_rendered(query, now))
                console.print()
            previous, previous_s = dict(now.answers), began_s
            time.sleep(max(0.0, EVERY_S - (time.monotonic() - began_s)))


def _rendered(query: Query[Body], now: QueryResult[Body]) -> RenderableType:
    silent = [one for one in now.responses if one.body is None]
    lines = [f"[red]{escape(one.name)} does not answer:[/] {escape(one.error)}" for one in silent]
    return Group(query.render(now), *lines)


def _json(responses: Sequence[Response[Body]]) -> bytes:
    brokers = [
        {"broker": one.broker.name, "address": str(one.broker.endpoint)}
        | ({"answer": one.body} if one.body is not None else {"error": one.error})
        for one in responses
    ]
    return msgspec.json.encode({"brokers": brokers})
