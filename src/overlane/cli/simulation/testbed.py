"""`overlane testbed`: run the traffic and events of a network file on real brokers, in real time.

Exit status: 0 done, 1 something needed is unavailable, 2 the file or an option is invalid.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from overlane.cli.duration_option import positive_duration
from overlane.cli.exit_status import exit_on_error
from overlane.cli.signals import cancelled_by_signals
from overlane.cli.simulation.simulate_view import topic_cells
from overlane.errors import Unavailable
from overlane.extras import is_installed, missing_extra
from overlane.network.reading import read_network
from overlane.network.schema import Network
from overlane.sim.report import Report
from overlane.testbed.trial import run_trial
from overlane.testbed.wide_area import why_not


def testbed(
    network_file: Annotated[Path, typer.Argument(metavar="NETWORK.toml", help="Network file.", show_default=False)],
    duration: Annotated[
        int | None,
        typer.Option(
            parser=positive_duration, metavar="DURATION", help="Duration, such as 60s (default: that of the file)."
        ),
    ] = None,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="Run without root: on loopback, links emulated by the brokers.")
    ] = False,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="Run brokers and clients with real-time priority.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Simulate the same network and show both results.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Run the traffic and events of a network file on real brokers, in an emulated wide area on this machine."""
    err = Console(stderr=True, highlight=False)

    def tell(at_s: float, what: str) -> None:
        err.print(f"{at_s:>9.3f} s  {escape(what)}")

    with exit_on_error():
        if not is_installed("pyarrow"):  # the report of routes is made from telemetry
            raise Unavailable("testbed", missing_extra("pyarrow", "telemetry"))
        network = read_network(network_file)
        if emulate and real_time:
            raise typer.BadParameter("--real-time requires root and excludes --emulate")
        if not emulate and (reason := why_not()) is not None:
            raise Unavailable("testbed", f"{reason}; with --emulate it runs on loopback without root")
        real = asyncio.run(
            cancelled_by_signals(run_trial(network, duration, tell, emulate=emulate, is_urgent=real_time))
        )
        simulated = _simulated(network, duration) if compare else None
    if as_json:
        shown: object = real if simulated is None else {"testbed": real, "simulated": simulated}
        typer.echo(msgspec.json.encode(shown))
    else:
        console = Console(highlight=False)
        console.print(_table(real, simulated))
        console.print()
        for line in _totals(real, simulated):
            console.print(line, soft_wrap=True)


def _simulated(network: Network, duration: int | None) -> Report:
    from overlane.sim.world import World

    return World(network, duration_ns=duration).run()


def _table(real: Report, simulated: Report | None) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("topic", overflow="fold", min_width=11)
    for column in ("published", "expected", "in time", "late", "lost", "twice", "p50", "p99", "max ms"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, topic in real.topics.items():
        if simulated is None:
            table.add_row(escape(name), *topic_cells(topic))
        else:
            table.add_row(escape(name))
            table.add_row("  testbed", *topic_cells(topic))
            table.add_row("  simulated", *topic_cells(simulated.topics[name]))
    return table


def _totals(real: Report, simulated: Report | None) -> Iterator[str]:
    for name, report in (("testbed", real), ("simulated", simulated)):
        if report is not None:
            shown = f"{name}: " if simulated is not None else ""
            yield (
                f"{shown}{report.sent_per_message:.2f} link transmissions per message, "
                f"{report.control_bytes_per_broker_s:.0f} bytes of control traffic per broker per second, "
                f"{len(report.route_changes)} route changes"
            )
