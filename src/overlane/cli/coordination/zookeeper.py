"""`overlane zookeeper`: run a ZooKeeper ensemble on this machine."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from overlane.cli.exit_status import exit_on_error
from overlane.cli.signals import cancelled_by_signals
from overlane.coordination.ensemble.layout import SERVERS_MAX
from overlane.coordination.ensemble.running import run_ensemble

DATA = Path("overlane-zookeeper")


def zookeeper(
    servers: Annotated[
        int, typer.Option("--servers", min=1, max=SERVERS_MAX, help="Number of servers; 3 survive the loss of one.")
    ] = 3,
    data: Annotated[Path, typer.Option("--data", help="Data directory; each server has a subdirectory in it.")] = DATA,
) -> None:
    """Run a ZooKeeper ensemble on this machine until Ctrl-C, and print its addresses when it is ready."""

    def report(text: str) -> None:
        typer.echo(text, err=True)

    try:
        with exit_on_error():
            asyncio.run(cancelled_by_signals(run_ensemble(data, servers, typer.echo, report)))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
