"""`overlane monitor`: a web page that shows running brokers, or replays a simulation."""

import asyncio
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from overlane.adminapi.supervisor_client import CONTROL_SOCKET, SupervisorClient
from overlane.cli.duration_option import positive_duration
from overlane.cli.exit_status import exit_on_error, fail
from overlane.errors import Unavailable
from overlane.extras import is_installed, missing_extra
from overlane.monitor.page_server import DEFAULT_AT, LiveOverlay, page_listener, serve_live, serve_recording
from overlane.monitor.recording_file import is_recording, read_recording
from overlane.network.reading import read_network

DATA = Path("overlane-data")
DAY = "24h"


def monitor(
    what: Annotated[
        Path,
        typer.Argument(
            help="Network file of running brokers, or a recording made by overlane simulate --record.",
            metavar="NETWORK.toml|RECORDING",
            show_default=False,
        ),
    ],
    at: Annotated[
        str,
        typer.Option(
            "--at", metavar="HOST:PORT", help="Address to listen on; a non-loopback address requires an admin token."
        ),
    ] = DEFAULT_AT,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Allow the page to slow, cut and heal links, and to stop and start brokers.")
    ] = False,
    data: Annotated[
        Path, typer.Option("--data", help="Data directory of overlane up, needed to stop and start its brokers.")
    ] = DATA,
    telemetry: Annotated[
        str | None,
        typer.Option(
            "--telemetry",
            metavar="LAKE",
            help="Show the past that brokers recorded in this directory or URL, instead of the present.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[
        int, typer.Option("--last", metavar="DURATION", parser=positive_duration, help="How much of the past to show.")
    ] = DAY,  # type: ignore[assignment]  # typer parses the default
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", help="File with the admin token, which also protects the page.", show_default=False
        ),
    ] = None,
) -> None:
    """Serve a web page that shows brokers, links and routes live, until Ctrl-C."""
    with exit_on_error():
        if is_recording(what):
            if telemetry is not None:
                fail("--telemetry: got a recording too; expected a network file with it")
            serving = serve_recording(*read_recording(what), page_listener(None, at, token_file))
        elif telemetry is not None:
            if not is_installed("pyarrow"):
                raise Unavailable(f"telemetry in {telemetry}", missing_extra("pyarrow", "telemetry"))
            from overlane.monitor.telemetry_replay import past_of

            network = read_network(what)
            past = past_of(network, what.name, telemetry, last)
            serving = serve_recording(*past, page_listener(network, at, token_file))
        else:
            network = read_network(what)
            control = data / CONTROL_SOCKET
            supervisor = SupervisorClient(control) if control.is_socket() else None
            serving = serve_live(
                LiveOverlay(network, what.name, page_listener(network, at, token_file), chaos, supervisor)
            )
        asyncio.run(_serve(serving))


async def _serve(serving: AbstractAsyncContextManager[str]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with serving as address:
        Console(highlight=False).print(f"monitor  {address}", soft_wrap=True)
        await ended.wait()
