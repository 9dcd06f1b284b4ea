"""`overlane clients`: who is connected, and whose session is kept."""

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from overlane.cli.asking import DEFAULT
from overlane.cli.showing import (
    AsJson,
    Limit,
    Question,
    Round,
    Target,
    TokenFile,
    Watch,
    count,
    run,
    size,
    span,
    table,
)
from overlane.node.views import ClientPage, ClientView

_NUMBERS = ("since", "silent", "subs", "queued", "sent", "in", "out", "unsent")


def clients(
    target: Target = DEFAULT,
    wanted: Annotated[
        str, typer.Option("--filter", help="Only those with this in their identifier or user name.")
    ] = "",
    limit: Limit = 50,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
) -> None:
    """Show clients, those that are away included, with their queues and traffic."""
    question = Question("/clients", {"limit": limit, "filter": wanted}, ClientPage, _show)
    run(question, target, as_json, watch, token_file)


def _show(now: Round[ClientPage]) -> RenderableType:
    shown = table("broker", "client", "user", "address", "version", *_NUMBERS, numbers=_NUMBERS)
    more = []
    for name, page in now.answers:
        for client in page.items:
            shown.add_row(escape(name), escape(client.id), escape(client.user or "-"), *_cells(client))
        if page.total > len(page.items):
            more.append(f"{escape(name)}: {len(page.items)} of {count(page.total)}; --limit and --filter choose")
    return Group(shown, *more)


def _cells(client: ClientView) -> tuple[str, ...]:
    queue, at = client.queue, client.connection
    if at is None:
        gone = "for ever" if client.expires_s is None else f"ends in {span(client.expires_s)}"
        where = (f"[dim]away, {gone}[/]", "-", "-", "-")
        traffic: tuple[str, ...] = ("-", "-", "-")
    else:
        where = (escape(at.address), at.version, span(at.connected_s), span(at.silent_s))
        traffic = (count(at.traffic.messages_in), count(at.traffic.messages_out), size(at.unsent_bytes))
    return *where, count(client.subscriptions), count(queue.messages), count(queue.in_flight), *traffic
