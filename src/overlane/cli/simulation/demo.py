"""`overlane demo`: five brokers on this machine and a sequence of faults, with the effects on messages.

Exit status: 0 no acknowledged message was lost or duplicated, 1 one was.
"""

import asyncio
import logging
import os
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from overlane.cli.exit_status import exit_on_error
from overlane.cli.plan.rollout import differences
from overlane.cli.signals import cancelled_by_signals
from overlane.cli.tables import table
from overlane.demo import lost_host
from overlane.demo.demo_run import DemoRun, StepOutcome
from overlane.demo.pipeline_results import PipelineResults, run_pipeline, why_not
from overlane.demo.step_results import Figures, busy_note, is_lossless
from overlane.demo.steps import STEPS, Step
from overlane.errors import Unavailable
from overlane.network.plan import BrokerForecast, LinkForecast, Plan
from overlane.network.reading import read_network
from overlane.network.schema import Network

LOST = 1
LOST_HOST_S = 3.0
"""Before the host is lost, and after it."""
LINKS_SHOWN = 4
STEP_COUNT = len(STEPS) + 1
LOST_HOST = Step(
    "lost host",
    "Another domain, coordinated by ZooKeeper: the host of a subscriber's broker is lost for good, with its disk.",
)

_NUMBERS = (
    *("of", "in time", "late", "lost", "twice", "p50", "p99"),
    *("down", "failures", "latency", "deliveries", "file", "history"),
)


def demo(
    stay: Annotated[bool, typer.Option("--stay", help="Keep everything running at the end, until Ctrl-C.")] = False,
    step_s: Annotated[float, typer.Option("--step", min=2, max=600, help="Duration of each step in seconds.")] = 9.0,
    pipeline: Annotated[
        bool, typer.Option("--pipeline/--no-pipeline", help="Run the data pipeline on the recorded telemetry.")
    ] = True,
    port: Annotated[int, typer.Option("--port", min=1, max=65_535, help="Port of the monitor.")] = 8080,
) -> None:
    """Run five brokers, slow and cut a link, kill a broker, and show what happens to the messages."""
    console = Console(highlight=False)
    with exit_on_error():
        with as_file(files("overlane.demo") / "five-cities.toml") as file:
            network = read_network(file)
        with tempfile.TemporaryDirectory(prefix="overlane-demo-") as directory:
            demo_run = DemoRun(network, Path(directory), step_s)
            is_kept = asyncio.run(cancelled_by_signals(_play(console, demo_run, stay, pipeline, port)))
    if not is_kept:
        raise typer.Exit(LOST)


async def _play(console: Console, demo_run: DemoRun, stay: bool, pipeline: bool, port: int) -> bool:
    """Whether every acknowledged message was delivered once."""
    console.print(
        "[bold]Overlane[/]: five cities, one broker each on this machine, with the real latencies between them."
    )
    async with AsyncExitStack() as stack:
        with console.status("starting brokers and clients"):
            await stack.enter_async_context(demo_run.running())
        address = await stack.enter_async_context(demo_run.page(port))
        console.print(f"Monitor, with fault injection: [bold cyan]{address}[/]")
        if not stay:
            console.print("It stops after the last step; --stay, or make demo STAY=1, keeps it running.", style="dim")
        console.print()
        outcomes, figures = await demo_run.run_steps(
            lambda number, step: _announce(console, number, step), lambda outcome: _report(console, outcome)
        )
        _summary(console, outcomes, figures)
        if not stay:
            await stack.aclose()  # flushes the telemetry, and leaves all cores to what follows
        is_kept = await _lose_host(console, demo_run) and is_lossless(figures)
        if pipeline:
            await _run_pipeline(console, demo_run)
        if stay:
            line = f"\nStill running. Monitor: {address}   Network file: {demo_run.file}   Stop: Ctrl-C"
            console.print(line, soft_wrap=True)
            with suppress(asyncio.CancelledError):  # Ctrl-C
                await asyncio.Event().wait()
        return is_kept


# Steps


def _announce(console: Console, number: int, step: Step) -> None:
    console.print(f"[bold]{number + 1}/{STEP_COUNT}  {escape(step.name)}[/]  {escape(step.description)}")


def _report(console: Console, outcome: StepOutcome) -> None:
    for move in outcome.moves:
        after = f"{move.after_s * 1000:.0f} ms" if move.after_s < 10 else f"{move.after_s:.0f} s"
        again = "" if move.times == 1 else f", {move.times} times in total"
        console.print(f"     {escape(move.topic)} was rerouted after {after}{again}; cause: {escape(move.cause)}")
        for path in move.paths:
            console.print(f"         now  {escape(' > '.join(path))}", style="dim")
    if outcome.step.events:
        moved = {move.topic for move in outcome.moves}
        for figures in outcome.figures:
            if figures.topic not in moved:
                console.print(f"     {escape(figures.topic)} kept its route")
    for figures in outcome.figures:
        colour = "green" if figures.in_time_rate >= 0.99 else "yellow"
        console.print(
            f"     {escape(figures.topic):14} [{colour}]{figures.in_time_rate:7.2%} in time[/] of {figures.expected}, "
            f"within {figures.deadline_ms:.0f} ms; late {figures.late}, in flight {figures.missing}, "
            f"duplicates {figures.duplicates}; p99 {figures.p99_ms:.0f} ms"
        )
    console.print()


def _summary(console: Console, outcomes: Sequence[StepOutcome], figures: Sequence[Figures]) -> None:
    shown_table = table("step", "topic", "of", "in time", "late", "lost", "twice", "p50", "p99", numbers=_NUMBERS)
    for outcome in outcomes:
        for number, one in enumerate(outcome.figures):
            name = outcome.step.name if number == 0 else ""
            shown_table.add_row(name, *_cells(one))
    for number, one in enumerate(figures):
        shown_table.add_row("[bold]all[/]" if number == 0 else "", *_cells(one))
    console.print(shown_table)
    if is_lossless(figures):
        console.print("\n[bold green]No acknowledged message was lost, none was duplicated.[/]")
    else:
        lost, twice = sum(one.missing for one in figures), sum(one.duplicates for one in figures)
        console.print(f"\n[bold red]{lost} acknowledged messages were lost, {twice} were duplicated.[/]")
    if (note := busy_note(outcomes[0].figures, os.getloadavg()[0], os.cpu_count() or 1)) is not None:
        console.print(note, style="yellow")


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


# A lost host


async def _lose_host(console: Console, demo_run: DemoRun) -> bool:
    """Whether every acknowledged message was delivered once, if it could be tried here."""
    console.print()
    _announce(console, len(STEPS), LOST_HOST)
    if (reason := lost_host.why_not()) is not None:
        console.print(f"     Skipped: {escape(reason)}", style="yellow")
        return True
    logging.getLogger("overlane.client").addHandler(logging.NullHandler())  # it would tell of the loss in between
    directory = demo_run.file.parent / "lost-host"
    directory.mkdir()
    try:
        with console.status("starting ZooKeeper and three brokers"):
            result = await lost_host.lose_host(directory, LOST_HOST_S)
    except Unavailable as error:
        console.print(f"     {escape(error.with_code())}", style="yellow")
        return True
    colour, arrived = "green" if result.is_lossless else "red", result.acknowledged - result.missing
    console.print(f"     {lost_host.LOST} goes on at the host of {result.host}")
    console.print(
        f"     {lost_host.TOPIC:14} [{colour}]{arrived} of {result.acknowledged} acknowledged messages arrived[/]; "
        f"duplicates {result.duplicates}; longest gap {result.gap_s * 1000:.0f} ms"
    )
    return result.is_lossless


# Pipeline


async def _run_pipeline(console: Console, demo_run: DemoRun) -> None:
    console.print("\n[bold]The data pipeline[/] reads the telemetry that the brokers have written.")
    if (reason := why_not()) is not None:
        console.print(f"Skipped: {escape(reason)}", style="yellow")
        return
    try:
        with console.status("starting Spark") as status:
            results = await run_pipeline(
                demo_run.lake, demo_run.file.parent / "tables", lambda line: status.update(escape(line))
            )
    except Unavailable as error:
        console.print(escape(error.with_code()), style="yellow")
        return
    show_results(console, results)
    show_plan(console, demo_run.network, results.plan)


def show_results(console: Console, results: PipelineResults) -> None:
    links = table("link", "down", "95 % interval", "failures", "latency", numbers=_NUMBERS)
    for row in results.links[:LINKS_SHOWN]:
        interval = f"{row['failure_low']:.1%} to {row['failure_high']:.1%}"
        latency = "-" if row["latency_ms"] is None else f"{row['latency_ms']:.1f} ms"
        links.add_row(
            f"{row['broker']} - {row['peer']}", f"{row['failure']:.1%}", interval, str(row["failures"]), latency
        )
    console.print()
    console.print(links)
    console.print()
    topics = table("topic", "deliveries", "in time", "p50", "p99", numbers=_NUMBERS)
    for row in results.topics:
        in_time = "-" if row["in_time_rate"] is None else f"{row['in_time_rate']:.2%}"
        topics.add_row(
            escape(row["topic"]), str(row["deliveries"]), in_time, f"{row['p50_ms']:.0f} ms", f"{row['p99_ms']:.0f} ms"
        )
    console.print(topics)


def show_plan(console: Console, network: Network, plan: Plan) -> None:
    changes = [change for change in differences(_as_plan(network), plan) if "failure" in change[0]]
    worst = sorted(changes, key=lambda change: -(change[2] or 0.0))[:LINKS_SHOWN]
    console.print("\nThe plan for [bold]overlane plan apply[/], largest changes first:")
    shown_table = table("what", "file", "history", numbers=_NUMBERS)
    for what, old, new in worst:
        shown_table.add_row(escape(what), "-" if old is None else f"{old:.2%}", "-" if new is None else f"{new:.2%}")
    console.print(shown_table)


def _as_plan(network: Network) -> Plan:
    """The values of the network file as a plan."""
    return Plan(
        made_ns=1,
        brokers={broker.name: BrokerForecast(broker.failure) for broker in network.brokers},
        links=tuple(LinkForecast(link.ends, link.failure) for link in network.links),
    )
