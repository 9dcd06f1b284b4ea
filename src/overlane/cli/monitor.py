"""`overlane monitor`: a web page that shows running brokers, or replays a simulation."""

import asyncio
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from overlane.cli.faults import told
from overlane.monitor.recordfile import is_recording
from overlane.monitor.serving import DEFAULT_AT, Watched, page_at, serving_live, serving_recording
from overlane.network.reading import read_network
from overlane.node.control import CONTROL, Control

DATA = Path("overlane-data")


def monitor(
    what: Annotated[
        Path,
        typer.Argument(
            help="The network file of running brokers, or a recording of overlane simulate --record.",
            metavar="NETWORK.toml|RECORDING",
            show_default=False,
        ),
    ],
    at: Annotated[
        str, typer.Option("--at", metavar="HOST:PORT", help="Where; elsewhere than on loopback with a token.")
    ] = DEFAULT_AT,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Let the page slow, cut and heal links, and stop and start brokers.")
    ] = False,
    data: Annotated[Path, typer.Option("--data", help="That of overlane up: through it brokers are started.")] = DATA,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="The token of the admin API, and of the page.", show_default=False),
    ] = None,
) -> None:
    """Serve a web page that shows brokers, links and the ways of topics as they are, until Ctrl-C."""
    with told():
        if is_recording(what):
            serving = serving_recording(what, page_at(None, at, token_file))
        else:
            network = read_network(what)
            control = data / CONTROL
            keeper = Control(control) if control.is_socket() else None
            serving = serving_live(Watched(network, what.name, page_at(network, at, token_file), chaos, keeper))
        asyncio.run(_serve(serving))


async def _serve(serving: AbstractAsyncContextManager[str]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with serving as address:
        Console(highlight=False).print(f"monitor  {address}", soft_wrap=True)
        await ended.wait()
