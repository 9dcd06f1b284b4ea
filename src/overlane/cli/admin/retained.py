"""`overlane retained`: list retained messages, or remove them at all brokers."""

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from overlane.adminapi.client import RequestFailed
from overlane.adminapi.topic_filters import fault_of
from overlane.adminapi.views import RetainedPage, RetainedRemoved
from overlane.cli.admin.admin_client import DEFAULT, Targets, delete, targets_of
from overlane.cli.exit_status import exit_on_error, fail
from overlane.cli.output import AsJson, Limit, Query, QueryResult, Target, TokenFile, run_query
from overlane.cli.tables import Wide, count, size, span, table

_NUMBERS = ("bytes", "qos", "age", "expires in")
PAGE = 1_000
"""Removed by one request."""


def retained(
    target: Target = DEFAULT,
    wanted: Annotated[str, typer.Option("--filter", help="Only topics that match this MQTT topic filter.")] = "",
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove them, at all brokers; --filter is required.")
    ] = False,
    limit: Limit = 50,
    as_json: AsJson = False,
    token_file: TokenFile = None,
    wide: Wide = False,
) -> None:
    """Show retained messages by topic, or remove them at all brokers."""
    if wanted and (wrong := fault_of(wanted)):
        fail(f"--filter: {wrong}")
    if not remove:
        parameters: dict[str, str | int] = {"limit": limit, "filter": wanted}
        run_query(Query("/retained", parameters, RetainedPage, _show), target, as_json, False, token_file, wide)
        return
    if not wanted:
        fail("--remove: got no --filter; expected one, such as --filter 'old/#', or --filter '#' for all")
    with exit_on_error():
        targets = targets_of(target, token_file)
    _remove(targets, wanted)


def _remove(targets: Targets, wanted: str) -> None:
    """The first broker that answers has the others remove theirs. Those it does not know, as of topics that no client
    of it can hear of, are removed by the next ones."""
    removed, answered = 0, False
    for broker in targets.brokers:
        try:
            has_more = True
            while has_more:
                done = delete(broker, "/retained", {"filter": wanted, "limit": PAGE}, targets.token, RetainedRemoved)
                removed, has_more, answered = removed + done.removed, done.has_more, True
        except RequestFailed as failed:
            typer.echo(f"{broker} does not answer: {failed}", err=True)
    if not answered:
        raise typer.Exit(1)
    typer.echo(f"removed {count(removed)} retained message{'' if removed == 1 else 's'}")


def _show(result: QueryResult[RetainedPage]) -> RenderableType:
    shown = table("broker", "topic", *_NUMBERS, numbers=_NUMBERS, dropped_first=("qos", "expires in", "age"))
    more = []
    for name, page in result.answers:
        for one in page.items:
            ends = "-" if one.expires_s is None else span(one.expires_s)
            shown.add_row(escape(name), escape(one.topic), size(one.bytes), str(one.qos), span(one.age_s), ends)
        if page.next is not None:
            more.append(f"{escape(name)}: the first {len(page.items)}; see --limit and --filter")
    return Group(shown, *more)
