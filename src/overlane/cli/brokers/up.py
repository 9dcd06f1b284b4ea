"""`overlane up`: run all brokers of a network file on this machine."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from overlane.adminapi.supervisor_client import CONTROL_SOCKET
from overlane.cli.brokers.startup_report import StartupReport
from overlane.cli.exit_status import UNAVAILABLE, exit_on_error, fail
from overlane.errors import ConfigError, Unavailable
from overlane.extras import is_installed, missing_extra
from overlane.monitor.page_server import DEFAULT_AT, LiveOverlay, page_listener, serve_live
from overlane.network.endpoints import Endpoints, endpoints_on_one_machine
from overlane.network.reading import read_network
from overlane.network.schema import Network
from overlane.node.logs.lines import Level
from overlane.node.supervision.control import listening
from overlane.node.supervision.supervisor import NeverReady, Supervisor

DATA = Path("overlane-data")
LAKE = "telemetry"


def up(
    network: Annotated[Path, typer.Argument(help="Network file.", metavar="NETWORK.toml", show_default=False)],
    data: Annotated[Path, typer.Option("--data", help="Data directory; each broker has a subdirectory in it.")] = DATA,
    in_memory: Annotated[
        bool, typer.Option("--in-memory", help="Store nothing on disk; all state is lost on exit.")
    ] = False,
    telemetry: Annotated[
        str | None,
        typer.Option(
            "--telemetry",
            metavar="DIR",
            help="Where brokers write telemetry: a directory, or a URL such as s3://bucket/lake (default: the directory"
            " telemetry inside the data directory).",
            show_default=False,
        ),
    ] = None,
    log_level: Annotated[Level, typer.Option("--log-level", help="Minimum log level of the brokers.")] = Level.WARNING,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="Emulate link latency, jitter, loss and rate as the file gives them.")
    ] = False,
    chaos: Annotated[
        bool,
        typer.Option(
            "--chaos", help="Allow the admin API to slow, cut and heal links, and the monitor to stop brokers."
        ),
    ] = False,
    monitor: Annotated[
        bool, typer.Option("--monitor", help="Serve the monitor, a web page that shows the overlay.")
    ] = False,
    monitor_at: Annotated[
        str,
        typer.Option(
            "--monitor-at",
            metavar="HOST:PORT",
            help="Address of the monitor; a non-loopback address requires an admin token.",
        ),
    ] = DEFAULT_AT,
) -> None:
    """Run all brokers of a network file until Ctrl-C, each as a process. A broker that dies is restarted.

    Its gateways run too, when all brokers are ready."""
    with exit_on_error():
        described = read_network(network)
        where = endpoints_on_one_machine(described, str(network))
        page = page_listener(described, monitor_at, None) if monitor else None
    flags = {"--in-memory": in_memory, "--emulate": emulate, "--chaos": chaos}
    options = ["--log-level", log_level.value, *(flag for flag, is_set in flags.items() if is_set)]
    # Without a setting, brokers record only if the library is installed; otherwise they report that they do not.
    is_recorded = described.telemetry.enabled or (described.telemetry.enabled is None and is_installed("pyarrow"))
    lake = telemetry or (str(data / LAKE) if is_recorded and not in_memory else None)
    if lake is not None:
        options += ["--telemetry", lake]
    out, err = Console(highlight=False), Console(stderr=True, highlight=False)

    def tell(name: str, text: str) -> None:
        err.print(f"[bold]{escape(name)}[/]  {escape(text)}", soft_wrap=True)

    where_data = None if in_memory else data
    if described.coordination is not None:
        with exit_on_error():
            _require_kazoo()
            # Only here: a file without [coordination] does without kazoo.
            from overlane.cli.brokers.two_tiers import run_two_tiers

            run_two_tiers(
                network,
                described,
                where_data,
                options,
                tell,
                StartupReport(tell),
                lambda at: _show(out, where, at),
                page,
                is_chaotic=chaos,
            )
        return
    report = StartupReport(tell)
    supervisor = Supervisor(network, _names(described), where_data, options, tell)
    levels = ["--log-level", log_level.value]
    gateways = Supervisor(network, _gateway_names(described), None, levels, tell, command="gateway")
    control = None if in_memory or not chaos else data / CONTROL_SOCKET
    try:
        with exit_on_error():
            asyncio.run(
                _run_with_page(
                    supervisor,
                    gateways,
                    None if page is None else LiveOverlay(described, network.name, page, chaos, supervisor),
                    control,
                    report,
                    lambda at: _show(out, where, at),
                    lambda: _reloaded_names(network, err),
                )
            )
    except NeverReady as error:
        fail(error, UNAVAILABLE)


def _require_kazoo() -> None:
    if not is_installed("kazoo"):
        raise Unavailable("coordination", missing_extra("kazoo", "coordination"))


def _gateway_names(network: Network) -> list[str]:
    return [*(one.name for one in network.gateways), *(one.name for one in network.dds)]


def _names(network: Network) -> list[str]:
    return [one.name for one in network.brokers if one.name not in network.absent_at_start()]


def _reloaded_names(file: Path, err: Console) -> tuple[list[str], list[str]] | None:
    """The brokers and gateways of the file as it is now; None if it is invalid."""
    try:
        network = read_network(file)
        endpoints_on_one_machine(network, str(file))
    except (ConfigError, Unavailable) as error:
        err.print(f"configuration unchanged: {escape(error.with_code())}", soft_wrap=True)
        return None
    return _names(network), _gateway_names(network)


async def _run_with_page(
    supervisor: Supervisor,
    gateways: Supervisor,
    watched: LiveOverlay | None,
    control: Path | None,
    report: StartupReport,
    ready: Callable[[str | None], None],
    reload_names: Callable[[], tuple[list[str], list[str]] | None],
) -> None:
    """`ready` gets the address of the monitor, if there is one."""
    async with AsyncExitStack() as stack:
        if control is not None:
            await stack.enter_async_context(listening(supervisor, control))
        address = await stack.enter_async_context(serve_live(watched)) if watched is not None else None
        await _run(supervisor, gateways, report, lambda: ready(address), reload_names)


async def _run(
    supervisor: Supervisor,
    gateways: Supervisor,
    report: StartupReport,
    ready: Callable[[], None],
    reload_names: Callable[[], tuple[list[str], list[str]] | None],
) -> None:
    task = asyncio.create_task(_run_all(supervisor, gateways, lambda: report.ready(ready)))
    report.awaited = lambda: supervisor.awaited() or gateways.awaited()
    reporting = asyncio.create_task(report.run())
    changes: set[asyncio.Task[None]] = set()

    async def change(brokers: list[str], gateway_names: list[str]) -> None:
        await supervisor.change(brokers)
        await gateways.change(gateway_names)

    def reload() -> None:
        if (names := reload_names()) is not None:
            changing = asyncio.create_task(change(*names))
            changes.add(changing)
            changing.add_done_callback(changes.discard)

    def end_at_once() -> None:
        gateways.kill_all()
        supervisor.kill_all()

    report.stop_on_signals(task.cancel, end_at_once)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    with suppress(asyncio.CancelledError):
        await task
    reporting.cancel()


async def _run_all(supervisor: Supervisor, gateways: Supervisor, ready: Callable[[], None]) -> None:
    """All brokers, and the gateways when they are ready. The first that cannot serve ends all."""
    are_ready = asyncio.Event()

    async def run_gateways() -> None:
        await are_ready.wait()
        await gateways.run(ready)

    tasks = [asyncio.create_task(supervisor.run(are_ready.set)), asyncio.create_task(run_gateways())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        # Gateways first: they say a last word to their brokers.
        for one in reversed(tasks):
            one.cancel()
            await asyncio.wait((one,))


def _show(out: Console, where: dict[str, Endpoints], page: str | None) -> None:
    table = Table("broker", "mqtt", "overlay", "admin", box=None, pad_edge=False)
    for name, at in where.items():
        table.add_row(name, str(at.mqtt), str(at.overlay), str(at.admin))
    out.print(table)
    if page is not None:
        out.print(f"monitor  {page}")
    out.print("ready", style="bold green")
