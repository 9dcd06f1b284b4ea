"""`overlane topics`: what is published, and how much."""

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
    milliseconds,
    run,
    size,
    table,
)
from overlane.node.views import TopicPage

_NUMBERS = ("messages", "a second", "bytes", "deadline")


def topics(
    target: Target = DEFAULT,
    wanted: Annotated[str, typer.Option("--filter", help="Only topics that match this MQTT filter.")] = "",
    limit: Limit = 50,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
) -> None:
    """Show the busiest topics that clients have published on; rates with --watch."""
    question = Question("/topics", {"limit": limit, "filter": wanted, "order": "messages"}, TopicPage, _show)
    run(question, target, as_json, watch, token_file)


def _show(now: Round[TopicPage]) -> RenderableType:
    shown = table("broker", "topic", *_NUMBERS, "reliability", "retained", numbers=_NUMBERS)
    more = []
    for name, page in now.answers:
        earlier = now.before.get(name)
        before = {topic.topic: topic.messages for topic in earlier.items} if earlier is not None else {}
        for topic in page.items:
            known = before.get(topic.topic)
            rate = count((topic.messages - known) / now.elapsed_s) if known is not None and now.elapsed_s else "-"
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
            more.append(f"{escape(name)}: {len(page.items)} of {count(page.total)}; --limit and --filter choose")
    return Group(shown, *more)
