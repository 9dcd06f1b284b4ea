"""`overlane clients`: connected clients and persistent sessions."""

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from overlane.adminapi.views import ClientPage, ClientView
from overlane.cli.admin.admin_client import DEFAULT
from overlane.cli.output import AsJson, Limit, Query, QueryResult, Target, TokenFile, Watch, run_query
from overlane.cli.tables import Wide, count, size, span, table

_NUMBERS = ("since", "silent", "subs", "queued", "sent", "in", "out", "unsent")
_DROPPED_FIRST = ("unsent", "silent", "protocol", "subs", "sent", "since", "user", "out", "in")


def clients(
    target: Target = DEFAULT,
    wanted: Annotated[
        str, typer.Option("--filter", help="Only clients whose identifier or user name contains this text.")
    ] = "",
    limit: Limit = 50,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
    wide: Wide = False,
) -> None:
    """Show clients with their queues and traffic, including disconnected clients with a session."""
    query = Query("/clients", {"limit": limit, "filter": wanted}, ClientPage, _show)
    run_query(query, target, as_json, watch, token_file, wide)


def _show(result: QueryResult[ClientPage]) -> RenderableType:
    columns = ("broker", "client", "user", "address", "protocol", *_NUMBERS)
    shown = table(*columns, numbers=_NUMBERS, dropped_first=_DROPPED_FIRST)
    more = []
    for name, page in result.answers:
        for client in page.items:
            shown.add_row(escape(name), escape(client.id), escape(client.user or "-"), *_cells(client))
        if page.total > len(page.items):
            more.append(f"{escape(name)}: {len(page.items)} of {count(page.total)}; see --limit and --filter")
    return Group(shown, *more)


def _cells(client: ClientView) -> tuple[str, ...]:
    queue, at = client.queue, client.connection
    if at is None:
        gone = "for ever" if client.expires_s is None else f"ends in {span(client.expires_s)}"
        where = (f"[dim]away, {gone}[/]", "-", "-", "-")
        traffic: tuple[str, ...] = ("-", "-", "-")
    else:
        where = (escape(at.address), f"{at.protocol} {at.version}".strip(), span(at.connected_s), span(at.silent_s))
        traffic = (count(at.traffic.messages_in), count(at.traffic.messages_out), size(at.unsent_bytes))
    return *where, count(client.subscriptions), count(queue.messages), count(queue.in_flight), *traffic
