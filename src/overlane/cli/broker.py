"""`overlane broker`: run one broker of a network file."""

from pathlib import Path
from typing import Annotated

import typer
import uvloop

from overlane.errors import ConfigError, Unavailable
from overlane.network.reading import read_network
from overlane.node.node import Node, Options


def broker(
    network: Annotated[Path, typer.Argument(help="The network file.", metavar="NETWORK.toml", show_default=False)],
    name: Annotated[str, typer.Option("--name", help="Which broker of the file; needed if it has several.")] = "",
    data: Annotated[
        Path | None, typer.Option("--data", help="Where its records are kept. Default: ./overlane-data/NAME.")
    ] = None,
    in_memory: Annotated[bool, typer.Option("--in-memory", help="Keep no records: everything ends with it.")] = False,
    no_sync: Annotated[
        bool,
        typer.Option("--no-sync", help="Do not wait for the disk: a power cut may lose acknowledged messages."),
    ] = False,
) -> None:
    """Run one broker of a network file, until Ctrl-C or SIGTERM."""
    try:
        described = read_network(network)
        names = [one.name for one in described.brokers]
        if not name and len(names) != 1:
            typer.echo(f"{network} has several brokers: say which with --name: {', '.join(names)}", err=True)
            raise typer.Exit(2)
        name = name or names[0]
        where = None if in_memory else data or Path("overlane-data") / name
        uvloop.run(_run(Options(network, name, where, not no_sync)))
    except ConfigError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except Unavailable as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


async def _run(options: Options) -> None:
    node = Node(options, read_network(options.file))
    await node.start()
    at = node.endpoints
    told = {"mqtt": at.mqtt, "mqtt_tls": at.mqtt_tls, "websocket": at.websocket, "websocket_tls": at.websocket_tls}
    shown = "  ".join(f"{kind} {endpoint}" for kind, endpoint in told.items() if endpoint is not None)
    print(f"ready  {options.name}  {shown}", flush=True)
    await node.run()
