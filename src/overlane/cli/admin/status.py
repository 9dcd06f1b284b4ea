"""`overlane status`: state of brokers."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.markup import escape

from overlane.adminapi.views import BrokerView
from overlane.cli.admin.admin_client import DEFAULT
from overlane.cli.output import AsJson, Query, QueryResult, Target, TokenFile, Watch, run_query
from overlane.cli.tables import Wide, count, size, span, table

_NUMBERS = ("up", "clients", "sessions", "subs", "retained", "queued", "in/s", "out/s", "dropped", "refused", "memory")
_DROPPED_FIRST = (
    *("loop lag", "sessions", "store", "memory", "subs", "retained"),
    *("queued", "up", "refused", "dropped", "clients"),
)


def status(
    target: Target = DEFAULT,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
    wide: Wide = False,
) -> None:
    """Show the state of brokers: clients, traffic, queues, store, links, dropped and refused messages."""
    run_query(Query("/status", {}, BrokerView, _show), target, as_json, watch, token_file, wide)


def _show(result: QueryResult[BrokerView]) -> RenderableType:
    shown = table(
        *("broker", "state", *_NUMBERS, "links", "store", "loop lag"), numbers=_NUMBERS, dropped_first=_DROPPED_FIRST
    )
    for _, broker in result.answers:
        store = broker.store
        shown.add_row(
            escape(broker.name),
            _state(broker),
            span(broker.uptime_s),
            count(broker.clients),
            count(broker.sessions),
            count(broker.subscriptions),
            count(broker.retained.messages),
            count(broker.queues.messages),
            count(broker.rates.messages_in),
            count(broker.rates.messages_out),
            count(sum(broker.dropped.values()) + sum(broker.overlay_lost.values())),
            count(sum(broker.turned_away.values())),
            size(broker.process.memory_bytes),
            f"{broker.links_up}/{broker.links}",
            store.state if store.state != "writing" else f"p99 {store.latency_p99_us / 1000:.1f} ms",
            f"{broker.loop.lag_us / 1000:.1f} ms",
        )
    return Group(shown, *_notes(result))


def _state(broker: BrokerView) -> str:
    if broker.not_ready:
        return "[red]not ready[/]"
    return "[green]ready[/]" if broker.state == "serving" else broker.state


def _notes(result: QueryResult[BrokerView]) -> Iterator[str]:
    """The reasons behind the numbers, where there are any."""
    for _, broker in result.answers:
        name = escape(broker.name)
        if broker.not_ready:
            yield f"[red]{name} is not ready:[/] {escape('; '.join(broker.not_ready))}"
        for what, counts in (
            ("dropped", broker.dropped),
            ("dropped in the overlay", broker.overlay_lost),
            ("refused", broker.turned_away),
        ):
            if counts:
                reasons = ", ".join(f"{escape(why)} {count(number)}" for why, number in counts.items())
                yield f"{name} {what}: {reasons}"
