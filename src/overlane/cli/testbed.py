"""`overlane testbed`: a network file played by real brokers, in real time.

Exit status: 0 it ran, 1 something needed did not answer, 2 the file or an option is wrong.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from overlane.cli.faults import told
from overlane.network.reading import read_network
from overlane.network.schema import Network
from overlane.network.units import parse_duration
from overlane.sim.report import TopicReport
from overlane.testbed.trial import TrialReport, run_trial


def _duration(text: str) -> int:
    try:
        duration_ns = parse_duration(text)
    except ValueError as reason:
        raise typer.BadParameter(f'{text} is {reason}, allowed is a duration such as "60s"') from None
    if duration_ns <= 0:
        raise typer.BadParameter(f"{text} is not above 0")
    return duration_ns


def testbed(
    network_file: Annotated[Path, typer.Argument(metavar="NETWORK.toml", help="The network file.", show_default=False)],
    duration: Annotated[
        int | None, typer.Option(parser=_duration, metavar="DURATION", help="How long, instead of the file's.")
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Simulate the same, and show both.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Play a network file with real brokers on this machine: its traffic and events, in real time."""
    err = Console(stderr=True, highlight=False)
    with told():
        network = read_network(network_file)
        real = asyncio.run(run_trial(network, duration, lambda at_s, what: err.print(f"{at_s:>9.3f} s  {what}")))
        simulated = _simulated(network, duration) if compare else None
    if as_json:
        shown: object = real if simulated is None else {"testbed": real, "simulated": simulated}
        typer.echo(msgspec.json.encode(shown))
    else:
        Console(highlight=False).print(_table(real, simulated))


def _simulated(network: Network, duration: int | None) -> TrialReport:
    from overlane.sim.world import World

    world = World(network, duration_ns=duration)
    return TrialReport(world.run(lambda _: None).topics, world.duration_ns / 1e9)


def _table(real: TrialReport, simulated: TrialReport | None) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("topic", ""):
        table.add_column(column)
    for column in ("published", "expected", "in time", "late", "lost", "twice", "p50", "p99", "max ms"):
        table.add_column(column, justify="right")
    for name, topic in real.topics.items():
        table.add_row(name, "testbed" if simulated else "", *_cells(topic))
        if simulated is not None and name in simulated.topics:
            table.add_row("", "simulated", *_cells(simulated.topics[name]))
    return table


def _cells(topic: TopicReport) -> list[str]:
    in_time = "-" if not topic.expected else f"{100 * topic.in_time / topic.expected:.2f} %"
    spread = topic.latency_ms
    times = ["-"] * 3 if spread is None else [f"{one:.1f}" for one in (spread.p50, spread.p99, spread.max)]
    counts = [str(one) for one in (topic.late, topic.lost, topic.duplicates)]
    return [str(topic.published), str(topic.expected), in_time, *counts, *times]
