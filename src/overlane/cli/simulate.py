"""`overlane simulate`: a network file under virtual time, or random overlays and faults.

Exit status: 0 it ran, 1 the soak found a broken invariant or the recording cannot be written, 2 the file or an option
is wrong.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from overlane.core.qos import Routing
from overlane.core.units import Nanos
from overlane.errors import ConfigError, Unavailable
from overlane.network import Network, parse_duration, read_network
from overlane.network.schema import SCHEDULINGS

if TYPE_CHECKING:
    from overlane.sim.world import World

BROKEN_INVARIANT = 1
UNWRITTEN = 1
BAD_REQUEST = 2


def _duration(text: str) -> Nanos:
    try:
        duration_ns = parse_duration(text)
    except ValueError as reason:
        raise typer.BadParameter(f'{text} is {reason}, allowed is a duration such as "60s" or "1.5m"') from None
    if duration_ns <= 0:
        raise typer.BadParameter(f"{text} is not above 0")
    return duration_ns


def _scheduling(text: str) -> str:
    if text not in SCHEDULINGS:
        raise typer.BadParameter(f"{text} is none of {', '.join(SCHEDULINGS)}")
    return text


def simulate(
    network_file: Annotated[
        str | None, typer.Argument(metavar="NETWORK.toml", help="The network file.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of all randomness, instead of the file's.")] = None,
    routing: Annotated[Routing | None, typer.Option(help="How all topics travel, instead of the file's.")] = None,
    scheduling: Annotated[
        str | None,
        typer.Option(
            parser=_scheduling,
            metavar="|".join(SCHEDULINGS),
            help="How links choose what to send, instead of the file's.",
        ),
    ] = None,
    duration: Annotated[
        int | None, typer.Option(parser=_duration, metavar="DURATION", help="How long, such as 60s.")
    ] = None,
    soak: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Run N random overlays with random faults instead of a file.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes for --soak.")] = 1,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Write a recording, to be replayed by overlane monitor FILE."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Run a network under virtual time: every message judged by its deadline, the same for the same seed."""
    # Here, not above: the other commands start sooner without the brokers.
    from overlane.cli.simulate_view import show
    from overlane.sim.traffic import Refused
    from overlane.sim.world import World

    if soak is not None:
        if network_file is not None or record is not None:
            _refuse("--soak draws its own networks: leave out the file and --record, or leave out --soak")
        _soak(soak, seed or 0, jobs, as_json)
        return
    if network_file is None:
        _refuse("a network file is needed, such as examples/five-cities.toml, or --soak N")
    try:
        network = read_network(network_file)
        world = World(network, seed=seed, routing=routing, scheduling=scheduling, duration_ns=duration)
        settle_ns = network.simulation.settle_ns
        bar = _bar("simulating", settle_ns + world.duration_ns)
        with _recorder(record, world, network, network_file) as look, bar as advance:

            def progress(now: Nanos) -> None:
                advance(now + settle_ns)
                look(now)

            report = world.run(progress)
    except ConfigError as wrong:
        _refuse(str(wrong))
    except Refused as refused:
        _refuse(f"{network_file}: {refused}")
    except Unavailable as error:
        typer.echo(f"overlane: {error}", err=True)
        raise typer.Exit(UNWRITTEN) from None
    if as_json:
        typer.echo(msgspec.json.encode(report))
    else:
        show(Console(), network_file, world, report)


def _soak(count: int, first_seed: int, jobs: int, as_json: bool) -> None:
    from overlane.sim.soak import run_seeds

    verdicts = []
    seeds = range(first_seed, first_seed + count)
    with _bar("soaking", count) as advance:
        for verdict in run_seeds(seeds, jobs):
            verdicts.append(verdict)
            advance(len(verdicts))
            if verdict.broken is not None and not as_json:
                typer.echo(verdict.told())
    failed = [verdict for verdict in verdicts if verdict.broken is not None]
    if as_json:
        typer.echo(msgspec.json.encode({"seeds": count, "failed": failed}))
    else:
        deliveries = sum(verdict.deliveries for verdict in verdicts)
        typer.echo(f"{count} seeds, {deliveries} deliveries, {len(failed)} seeds with a broken invariant")
    if failed:
        raise typer.Exit(BROKEN_INVARIANT)


@contextmanager
def _recorder(file: Path | None, world: "World", network: Network, title: str) -> Iterator[Callable[[Nanos], None]]:
    """What to call as time goes on; the recording is written in the end, if there is to be one."""
    if file is None:
        yield lambda _: None
        return
    from overlane.monitor.recordfile import write_recording
    from overlane.monitor.simulated import Recorder

    recorder = Recorder(world, network, Path(title).name)
    yield recorder.look
    write_recording(file, recorder.head(), recorder.changes)


@contextmanager
def _bar(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error if that is a terminal; what to call with how far it is."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda completed: progress.update(task, completed=completed)


def _refuse(reason: str) -> NoReturn:
    typer.echo(f"overlane: {reason}", err=True)
    raise typer.Exit(BAD_REQUEST)
