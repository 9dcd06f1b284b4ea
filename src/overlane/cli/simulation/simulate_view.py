"""Display of a simulation: a table of topics, route changes in time order, totals."""

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from overlane.cli.simulation.traffic_view import share
from overlane.core.routing.paths import paths_in
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.sim.report import Report, TopicReport
from overlane.sim.run_log import Requirement, RouteMove, RunEvent, Unmeetable, milliseconds, seconds
from overlane.sim.world import World

TIMELINE_LINES_MAX = 60
PATHS_SHOWN_MAX = 3


def show(console: Console, name: str, world: World, report: Report) -> None:
    hosts, links = len(world.hosts), len(world.links)
    console.print(
        f"[bold]{escape(name)}[/]  {hosts} brokers, {links} links, "
        f"{seconds(world.duration_ns):g} s of virtual time, seed {world.seed}"
    )
    console.print()
    console.print(_topics(world, report))
    console.print()
    lines = list(_timeline(world))
    if lines:
        console.print("[bold]Timeline[/]")
        for line in lines[:TIMELINE_LINES_MAX]:
            console.print(line, soft_wrap=True)
        if len(lines) > TIMELINE_LINES_MAX:
            console.print(f"  and {len(lines) - TIMELINE_LINES_MAX} more; --json has every route change")
        console.print()
    console.print(_totals(report), soft_wrap=True)


def _topics(world: World, report: Report) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("topic", overflow="fold", min_width=8)
    for column in ("deadline", "published", "expected", "in time", "late", "lost", "twice", "p50", "p99", "max ms"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, topic in report.topics.items():
        deadline_ns = world.judge.rows[name].deadline_ns
        deadline = f"{milliseconds(deadline_ns):g} ms" if deadline_ns < NEVER else "none"
        table.add_row(escape(name), deadline, *topic_cells(topic))
    return table


def topic_cells(topic: TopicReport) -> Iterator[str]:
    """The cells of one topic, from published to maximum latency."""
    yield f"{topic.published}"
    yield f"{topic.expected}"
    yield share(topic.in_time, topic.expected) if topic.expected else "-"
    for failed in (topic.late, topic.lost, topic.duplicates):
        yield f"[red]{failed}[/]" if failed else "0"
    if topic.latency_ms is None:
        yield from ("-", "-", "-")
    else:
        yield from (f"{topic.latency_ms.p50:.1f}", f"{topic.latency_ms.p99:.1f}", f"{topic.latency_ms.max:.1f}")


def _timeline(world: World) -> Iterator[str]:
    """Events, each followed by the route changes it caused, in time order."""
    run_log = world.run_log
    moves = [move for move in run_log.route_moves if move.at >= 0]
    entries: list[RunEvent | RouteMove | Unmeetable | Requirement] = [*run_log.deeds, *moves, *run_log.unmeetable]
    entries += run_log.requirements
    for entry in sorted(entries, key=lambda entry: entry.at):  # stable: an event before the changes it caused
        match entry:
            case RunEvent(at, what):
                yield f"{seconds(at):>9.3f} s  [bold]{escape(what)}[/]"
            case RouteMove():
                yield f"{seconds(entry.at):>9.3f} s    {_moved(entry)}"
            case Requirement(at, source, topics, changed):
                to, colour = changed.unmet.destination, "green" if changed.is_met else "yellow"
                told = f"{changed.unmet.requirement} is met again" if changed.is_met else str(changed.unmet)
                words = f"{', '.join(topics)}: from {source} to {to}: {told}"
                yield f"{seconds(at):>9.3f} s    [{colour}]{escape(words)}[/]"
            case Unmeetable(at, source, topics, effect):
                yield (
                    f"{seconds(at):>9.3f} s    [yellow]{escape(', '.join(topics))}: the deadline cannot be met from "
                    f"{escape(source)} to {escape(effect.destination)}[/]"
                )


def _moved(move: RouteMove) -> str:
    effect = move.effect
    paths = [
        " -> ".join(path)
        for destination in effect.destinations
        for path in paths_in(effect.links, move.source, destination)
    ]
    if len(paths) > PATHS_SHOWN_MAX:
        paths[PATHS_SHOWN_MAX:] = [f"{len(paths) - PATHS_SHOWN_MAX} more"]
    after = f", {_span(move.at - move.deed.at)} after" if move.deed else ""
    topics, shown = escape(", ".join(move.topics)), escape("; ".join(paths) or "no path")
    return f"{topics} now over [cyan]{shown}[/] ({escape(effect.cause)}{after})"


def _span(duration_ns: Nanos) -> str:
    return f"{duration_ns / SECOND:.1f} s" if duration_ns >= SECOND else f"{duration_ns / MS:.0f} ms"


def _totals(report: Report) -> str:
    return (
        f"{report.sent_per_message:.2f} link transmissions per message, "
        f"{report.control_bytes_per_broker_s:.0f} bytes of control traffic per broker per second\n"
        f"digest {report.digest}"
    )
