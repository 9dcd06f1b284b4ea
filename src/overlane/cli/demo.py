"""`overlane demo`: five cities on this machine, troubles one after the other, told as they happen.

Exit status: 0 nothing acknowledged was lost or came twice, 1 something was or did.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from overlane.cli.ending import ended_by_signals
from overlane.cli.faults import told
from overlane.cli.plan.following import differences
from overlane.cli.showing import table
from overlane.demo.judging import Figures, is_faithful
from overlane.demo.lessons import Lessons, learn, why_not
from overlane.demo.stage import Outcome, Stage
from overlane.demo.steps import STEPS, Step
from overlane.errors import Unavailable
from overlane.network.plan import BrokerOutlook, LinkOutlook, Plan
from overlane.network.reading import read_network
from overlane.network.schema import Network

LOST = 1
LINKS_SHOWN = 4

_NUMBERS = ("of", "in time", "late", "lost", "twice", "p50", "p99", "down", "latency", "deliveries", "file", "history")


def demo(
    stay: Annotated[bool, typer.Option("--stay", help="Leave all running at the end, until Ctrl-C.")] = False,
    step_s: Annotated[float, typer.Option("--step", min=2, max=600, help="Seconds that each step takes.")] = 9.0,
    pipeline: Annotated[
        bool, typer.Option("--pipeline/--no-pipeline", help="Run the data pipeline on what was recorded.")
    ] = True,
    port: Annotated[int, typer.Option("--port", min=1, max=65_535, help="Of the monitor's page.")] = 8080,
) -> None:
    """Run five cities as real brokers, slow and cut a link, kill a broker, and see what becomes of the messages."""
    console = Console(highlight=False)
    with told():
        with as_file(files("overlane.demo") / "five-cities.toml") as file:
            network = read_network(file)
        with tempfile.TemporaryDirectory(prefix="overlane-demo-") as directory:
            stage = Stage(network, Path(directory), step_s)
            figures = asyncio.run(ended_by_signals(_play(console, stage, stay, pipeline, port)))
    if not is_faithful(figures):
        raise typer.Exit(LOST)


async def _play(console: Console, stage: Stage, stay: bool, pipeline: bool, port: int) -> list[Figures]:
    console.print("[bold]Overlane[/]: five cities, each a broker of its own on this machine, as far apart as they are.")
    async with AsyncExitStack() as stack:
        with console.status("starting brokers and clients"):
            await stack.enter_async_context(stage.running())
        address = await stack.enter_async_context(stage.page(port))
        console.print(f"Watch it, and try it by hand: [bold cyan]{address}[/]")
        if not stay:
            console.print("It ends with the story; --stay, or make demo STAY=1, leaves it running.", style="dim")
        console.print()
        outcomes, figures = await stage.play(
            lambda number, step: _announce(console, number, step), lambda outcome: _report(console, outcome)
        )
        _summary(console, outcomes, figures)
        if not stay:
            await stack.aclose()  # the last of what they record is written then, and the pipeline has their processors
        if pipeline:
            await _learn(console, stage)
        if stay:
            said = f"\nEverything goes on. Page: {address}   Network file: {stage.file}   End: Ctrl-C"
            console.print(said, soft_wrap=True)
            with suppress(asyncio.CancelledError):  # that is how it is meant to end
                await asyncio.Event().wait()
        return figures


# The story


def _announce(console: Console, number: int, step: Step) -> None:
    console.print(f"[bold]{number + 1}/{len(STEPS)}  {escape(step.name)}[/]  {escape(step.told)}")


def _report(console: Console, outcome: Outcome) -> None:
    for move in outcome.moves:
        after = f"{move.after_s * 1000:.0f} ms" if move.after_s < 10 else f"{move.after_s:.0f} s"
        again = "" if move.times == 1 else f", and {move.times} times in all"
        console.print(f"     {escape(move.topic)} moved after {after}{again}, because: {escape(move.cause)}")
        for path in move.paths:
            console.print(f"         now  {escape(' > '.join(path))}", style="dim")
    if outcome.step.events:
        moved = {move.topic for move in outcome.moves}
        for figures in outcome.figures:
            if figures.topic not in moved:
                console.print(f"     {escape(figures.topic)} stayed where it was")
    for figures in outcome.figures:
        colour = "green" if figures.in_time_rate >= 0.99 else "yellow"
        console.print(
            f"     {escape(figures.topic):14} [{colour}]{figures.in_time_rate:7.2%} in time[/] of {figures.expected}, "
            f"within {figures.deadline_ms:.0f} ms; late {figures.late}, under way {figures.missing}, "
            f"twice {figures.duplicates}; p99 {figures.p99_ms:.0f} ms"
        )
    console.print()


def _summary(console: Console, outcomes: Sequence[Outcome], figures: Sequence[Figures]) -> None:
    shown_table = table("step", "topic", "of", "in time", "late", "lost", "twice", "p50", "p99", numbers=_NUMBERS)
    for outcome in outcomes:
        for number, one in enumerate(outcome.figures):
            name = outcome.step.name if number == 0 else ""
            shown_table.add_row(name, *_cells(one))
    for number, one in enumerate(figures):
        shown_table.add_row("[bold]all[/]" if number == 0 else "", *_cells(one))
    console.print(shown_table)
    if is_faithful(figures):
        console.print("\n[bold green]Nothing acknowledged was lost, nothing came twice.[/]")
    else:
        lost, twice = sum(one.missing for one in figures), sum(one.duplicates for one in figures)
        console.print(f"\n[bold red]{lost} acknowledged messages were lost, {twice} came twice.[/]")


def _cells(one: Figures) -> tuple[str, ...]:
    return (
        escape(one.topic),
        str(one.expected),
        f"{one.in_time_rate:.2%}",
        str(one.late),
        str(one.missing),
        str(one.duplicates),
        f"{one.p50_ms:.0f} ms",
        f"{one.p99_ms:.0f} ms",
    )


# What is learnt


async def _learn(console: Console, stage: Stage) -> None:
    console.print("\n[bold]The data pipeline[/] reads what the brokers have recorded of themselves.")
    if (reason := why_not()) is not None:
        console.print(f"It is left out: {escape(reason)}", style="yellow")
        return
    try:
        with console.status("starting Spark") as status:
            lessons = await learn(stage.lake, stage.file.parent / "tables", lambda line: status.update(escape(line)))
    except Unavailable as error:
        console.print(escape(str(error)), style="yellow")
        return
    show_lessons(console, lessons)
    show_plan(console, stage.network, lessons.plan)


def show_lessons(console: Console, lessons: Lessons) -> None:
    links = table("link", "down", "95 % interval", "failures", "latency", numbers=_NUMBERS)
    for row in lessons.links[:LINKS_SHOWN]:
        interval = f"{row['failure_low']:.1%} to {row['failure_high']:.1%}"
        latency = "-" if row["latency_ms"] is None else f"{row['latency_ms']:.1f} ms"
        links.add_row(
            f"{row['broker']} - {row['peer']}", f"{row['failure']:.1%}", interval, str(row["failures"]), latency
        )
    console.print(links)
    topics = table("topic", "deliveries", "in time", "p50", "p99", numbers=_NUMBERS)
    for row in lessons.topics:
        in_time = "-" if row["in_time_rate"] is None else f"{row['in_time_rate']:.2%}"
        topics.add_row(
            escape(row["topic"]), str(row["deliveries"]), in_time, f"{row['p50_ms']:.0f} ms", f"{row['p99_ms']:.0f} ms"
        )
    console.print(topics)


def show_plan(console: Console, network: Network, plan: Plan) -> None:
    changes = [change for change in differences(_as_plan(network), plan) if "failure" in change[0]]
    worst = sorted(changes, key=lambda change: -(change[2] or 0.0))[:LINKS_SHOWN]
    console.print(
        "\nThe plan that it would give the brokers with [bold]overlane plan apply[/], in its largest changes:"
    )
    shown_table = table("what", "file", "history", numbers=_NUMBERS)
    for what, old, new in worst:
        shown_table.add_row(escape(what), "-" if old is None else f"{old:.2%}", "-" if new is None else f"{new:.2%}")
    console.print(shown_table)


def _as_plan(network: Network) -> Plan:
    """What the network file says, in the form of a plan."""
    return Plan(
        made_ns=1,
        brokers={broker.name: BrokerOutlook(broker.failure) for broker in network.brokers},
        links=tuple(LinkOutlook(link.ends, link.failure) for link in network.links),
    )
