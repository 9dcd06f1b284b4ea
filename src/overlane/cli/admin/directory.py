"""`overlane directory`: items, and their primary and mirror brokers."""

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from overlane.adminapi.views import DirectoryView
from overlane.cli.admin.admin_client import DEFAULT
from overlane.cli.output import AsJson, Query, QueryResult, Target, TokenFile, Watch, run_query
from overlane.cli.tables import Wide, table
from overlane.items.directory import item_of


def directory(
    target: Target = DEFAULT,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Only the item of this topic.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
    wide: Wide = False,
) -> None:
    """Show items with their primary and mirror brokers, or those of one topic, and the risk of each broker."""
    asked: dict[str, str | int] = {} if topic is None else {"topic": topic}
    query = Query("/directory", asked, DirectoryView, lambda result: _show(result, topic))
    run_query(query, target, as_json, watch, token_file, wide)


def _show(result: QueryResult[DirectoryView], topic: str | None) -> RenderableType:
    """Of each domain what the broker with the latest epoch says."""
    domains: dict[str, DirectoryView] = {}
    for _, view in result.answers:
        if view.domain and view.epoch >= domains.get(view.domain, view).epoch:
            domains[view.domain] = view
    if not domains:
        return "no [items]: see docs/items.md"
    parts: list[RenderableType] = []
    for domain, view in sorted(domains.items()):
        master = view.master or "none"
        parts.append(f"{escape(domain)}: epoch {view.epoch}, {escape(view.state)}; master {escape(master)}")
        shown = table("item", "topics", "primary", "mirror", "critical", wrapped=("topics",))
        for one in view.items:
            if topic is None or item_of(topic, {one.item: tuple(one.topics)}):
                topics = escape(" ".join(one.topics))
                shown.add_row(
                    escape(one.item), topics, one.primary or "-", one.mirror or "-", "yes" if one.critical else ""
                )
        parts.append(shown)
        if topic is None and view.measured:
            risks = table("broker", "Pr(V > C) planned", "measured", numbers=("Pr(V > C) planned", "measured"))
            for broker, risk in sorted(view.measured.items()):
                planned = view.predicted.get(broker)
                risks.add_row(escape(broker), "-" if planned is None else f"{planned:.2g}", f"{risk:.2g}")
            parts.append(risks)
    return Group(*parts)
