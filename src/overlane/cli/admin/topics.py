"""`overlane topics`: published topics and their message counts."""

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from overlane.adminapi.topic_filters import fault_of
from overlane.adminapi.views import TopicPage
from overlane.cli.admin.admin_client import DEFAULT
from overlane.cli.exit_status import fail
from overlane.cli.output import AsJson, Limit, Query, QueryResult, Target, TokenFile, Watch, run_query
from overlane.cli.tables import Wide, count, milliseconds, size, table

_NUMBERS = ("messages", "a second", "bytes", "deadline")
_DROPPED_FIRST = ("retained", "bytes", "reliability", "deadline", "a second")


def topics(
    target: Target = DEFAULT,
    wanted: Annotated[str, typer.Option("--filter", help="Only topics that match this MQTT topic filter.")] = "",
    limit: Limit = 50,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
    wide: Wide = False,
) -> None:
    """Show the topics with the most messages published by clients; with --watch, message rates too."""
    if wanted and (wrong := fault_of(wanted)):
        fail(f"--filter: {wrong}")
    query = Query("/topics", {"limit": limit, "filter": wanted, "order": "messages"}, TopicPage, _show)
    run_query(query, target, as_json, watch, token_file, wide)


def _show(result: QueryResult[TopicPage]) -> RenderableType:
    shown = table(
        *("broker", "topic", *_NUMBERS, "reliability", "retained"), numbers=_NUMBERS, dropped_first=_DROPPED_FIRST
    )
    more = []
    for name, page in result.answers:
        earlier = result.previous.get(name)
        before = {topic.topic: topic.messages for topic in earlier.items} if earlier is not None else {}
        for topic in page.items:
            known = before.get(topic.topic)
            rate = count((topic.messages - known) / result.elapsed_s) if known is not None and result.elapsed_s else "-"
            shown.add_row(
                escape(name),
                escape(topic.topic),
                count(topic.messages),
                rate,
                size(topic.bytes),
                milliseconds(topic.deadline_ms),
                topic.reliability,
                "yes" if topic.is_retained else "-",
            )
        if page.total > len(page.items):
            more.append(f"{escape(name)}: {len(page.items)} of {count(page.total)}; see --limit and --filter")
    return Group(shown, *more)
