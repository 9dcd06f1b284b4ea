"""`overlane simulate`: simulate a network file in virtual time, or random overlays with random faults.

Exit status: 0 done, 1 the soak found a violated invariant or the recording cannot be written, 2 the file or an option
is invalid, 130 the soak was interrupted; what it has found until then is told.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from overlane.cli.duration_option import positive_duration
from overlane.cli.exit_status import INTERRUPTED, fail
from overlane.core.qos import Routing
from overlane.core.units import Nanos
from overlane.errors import ConfigError, Unavailable
from overlane.network import Network, read_network
from overlane.network.schema import SCHEDULINGS

if TYPE_CHECKING:
    from overlane.sim.world import World

INVARIANT_VIOLATED = 1


class SoakOf(StrEnum):
    OVERLAY = "overlay"
    BROKERS = "brokers"
    TIERS = "tiers"
    COORDINATED = "coordinated"
    DOMAIN = "domain"
    ITEMS = "items"
    BOTH = "both"


def _scheduling(text: str) -> str:
    if text not in SCHEDULINGS:
        raise typer.BadParameter(f"got {text}; expected one of {', '.join(SCHEDULINGS)}")
    return text


def simulate(
    network_file: Annotated[
        str | None, typer.Argument(metavar="NETWORK.toml", help="Network file.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed (default: that of the file).")] = None,
    routing: Annotated[Routing | None, typer.Option(help="Routing of all topics (default: as in the file).")] = None,
    scheduling: Annotated[
        str | None,
        typer.Option(
            parser=_scheduling,
            metavar="|".join(SCHEDULINGS),
            help="Scheduling of link queues (default: that of the file).",
        ),
    ] = None,
    duration: Annotated[
        int | None,
        typer.Option(
            parser=positive_duration,
            metavar="DURATION",
            help="Virtual time to simulate, such as 60s (default: that of the file).",
        ),
    ] = None,
    soak: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Test N random overlays with random faults instead of a file."),
    ] = None,
    soak_of: Annotated[
        SoakOf,
        typer.Option(
            "--soak-of",
            help="Simulate the overlay protocol of many brokers, whole brokers with MQTT clients and disks, whole "
            "brokers in two tiers, these with a leader and a coordination service, whole brokers of a domain that "
            "share their clients, or the management agents of a domain with items; both: the first two.",
        ),
    ] = SoakOf.BOTH,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes for --soak.")] = 1,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Write a recording, for replay with overlane monitor FILE."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Simulate a network in virtual time and report delivery per topic. The same seed gives the same result."""
    # Imported here so that other commands start faster.
    from overlane.cli.simulation.simulate_view import show
    from overlane.sim.garbage import collect_rarely
    from overlane.sim.traffic import MessageTooLarge
    from overlane.sim.world import World

    if soak is not None:
        if network_file is not None or record is not None:
            fail("--soak generates its networks: it takes neither a network file nor --record")
        _soak(soak, soak_of, seed or 0, jobs, as_json)
        return
    if network_file is None:
        fail("a network file, such as examples/five-cities.toml, or --soak N is required")
    try:
        network = read_network(network_file)
        collect_rarely()
        world = World(network, seed=seed, routing=routing, scheduling=scheduling, duration_ns=duration)
        settle_ns = network.simulation.settle_ns
        bar = _bar("simulating", settle_ns + world.duration_ns)
        with _recorder(record, world, network, network_file) as look, bar as advance:

            def progress(now: Nanos) -> None:
                advance(now + settle_ns)
                look(now)

            report = world.run(progress)
    except MessageTooLarge as refused:
        fail(f"{network_file}: {refused}", code=refused.error_code)
    except (ConfigError, Unavailable) as error:
        fail(error)
    if as_json:
        typer.echo(msgspec.json.encode(report))
    else:
        show(Console(), network_file, world, report)


def _soak(count: int, of: SoakOf, first_seed: int, jobs: int, as_json: bool) -> None:
    from overlane.sim import items, soak, whole
    from overlane.sim.garbage import collect_rarely

    kinds = {
        SoakOf.OVERLAY: soak.run_seeds,
        SoakOf.BROKERS: whole.run_seeds,
        SoakOf.TIERS: whole.run_tier_seeds,
        SoakOf.COORDINATED: whole.run_coordinated_seeds,
        SoakOf.DOMAIN: whole.run_domain_seeds,
        SoakOf.ITEMS: items.run_items_seeds,
    }
    soaks = [kinds[of]] if of in kinds else [soak.run_seeds, whole.run_seeds]
    collect_rarely()  # for the processes of --jobs too
    verdicts = []
    seeds = range(first_seed, first_seed + count)
    is_interrupted = False
    with _bar("soaking", count * len(soaks)) as advance:
        try:
            for run_seeds in soaks:
                for verdict in run_seeds(seeds, jobs):
                    verdicts.append(verdict)
                    advance(len(verdicts))
                    if verdict.broken is not None and not as_json:
                        typer.echo(verdict.told())
        except KeyboardInterrupt:  # what was found until then is worth knowing
            is_interrupted = True
    failed = [verdict for verdict in verdicts if verdict.broken is not None]
    if as_json:
        typer.echo(msgspec.json.encode({"seeds": count, "runs": len(verdicts), "failed": failed}))
    else:
        deliveries = sum(verdict.deliveries for verdict in verdicts)
        told = f"{count} seeds, {len(verdicts)} runs, {deliveries} deliveries"
        typer.echo(f"{told}, {len(failed)} runs with a violated invariant")
    if is_interrupted:
        last = f"; the last was seed {verdicts[-1].seed}" if verdicts else ""
        typer.echo(f"interrupted{last}", err=True)
        raise typer.Exit(INTERRUPTED)
    if failed:
        raise typer.Exit(INVARIANT_VIOLATED)


@contextmanager
def _recorder(file: Path | None, world: "World", network: Network, title: str) -> Iterator[Callable[[Nanos], None]]:
    """Yields a function to call as time goes on; the recording, if one is wanted, is written at the end."""
    if file is None:
        yield lambda _: None
        return
    from overlane.monitor.recording_file import write_recording
    from overlane.monitor.simulation_recorder import SimulationRecorder

    recorder = SimulationRecorder(world, network, Path(title).name)
    yield recorder.sample
    write_recording(file, recorder.head(), recorder.changes)


@contextmanager
def _bar(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error if that is a terminal; yields a function to call with the progress."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda completed: progress.update(task, completed=completed)
