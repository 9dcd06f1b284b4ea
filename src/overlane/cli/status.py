"""`overlane status`: brokers at a glance."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.markup import escape

from overlane.cli.asking import DEFAULT
from overlane.cli.showing import AsJson, Question, Round, Target, TokenFile, Watch, count, run, size, span, table
from overlane.node.views import BrokerView

_NUMBERS = ("up", "clients", "sessions", "subs", "retained", "queued", "in/s", "out/s", "dropped", "refused", "memory")


def status(
    target: Target = DEFAULT,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
) -> None:
    """Show how brokers are: clients, traffic, queues, store, links, and what was dropped or refused."""
    run(Question("/status", {}, BrokerView, _show), target, as_json, watch, token_file)


def _show(now: Round[BrokerView]) -> RenderableType:
    shown = table("broker", "state", *_NUMBERS, "links", "store", "loop lag", numbers=_NUMBERS)
    for _, broker in now.answers:
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
            count(sum(broker.dropped.values())),
            count(sum(broker.refused.values())),
            size(broker.process.memory_bytes),
            f"{broker.links_up}/{broker.links}",
            store.state if store.state != "writing" else f"p99 {store.latency_p99_us / 1000:.1f} ms",
            f"{broker.loop.lag_us / 1000:.1f} ms",
        )
    return Group(shown, *_notes(now))


def _state(broker: BrokerView) -> str:
    if broker.not_ready:
        return "[red]not ready[/]"
    return "[green]ready[/]" if broker.state == "serving" else broker.state


def _notes(now: Round[BrokerView]) -> Iterator[str]:
    """What the numbers are made of, where that matters."""
    for _, broker in now.answers:
        name = escape(broker.name)
        if broker.not_ready:
            yield f"[red]{name} is not ready:[/] {escape('; '.join(broker.not_ready))}"
        for what, counts in (("dropped", broker.dropped), ("refused", broker.refused)):
            if counts:
                reasons = ", ".join(f"{escape(why)} {count(number)}" for why, number in counts.items())
                yield f"{name} {what}: {reasons}"
