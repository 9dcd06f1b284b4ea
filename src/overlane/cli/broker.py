"""`overlane broker`: run one broker of a network file."""

import asyncio
import gc
import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from overlane.cli.faults import told
from overlane.errors import ConfigError, Fault
from overlane.network.reading import read_network
from overlane.network.schema import Network
from overlane.node.logs import Format, Level, set_up
from overlane.node.node import Node, Options

DATA = Path("overlane-data")


def broker(
    network: Annotated[Path, typer.Argument(help="The network file.", metavar="NETWORK.toml", show_default=False)],
    name: Annotated[str, typer.Option("--name", help="Which broker of the file; needed if it has several.")] = "",
    data: Annotated[
        Path | None, typer.Option("--data", help="Where its records are kept. Default: overlane-data/NAME.")
    ] = None,
    in_memory: Annotated[bool, typer.Option("--in-memory", help="Keep no records: everything ends with it.")] = False,
    no_sync: Annotated[
        bool, typer.Option("--no-sync", help="Do not wait for the disk: a power cut may lose acknowledged messages.")
    ] = False,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="Let links take as long as the file says, on one machine too.")
    ] = False,
    chaos: Annotated[bool, typer.Option("--chaos", help="Let the admin API slow, cut and heal links.")] = False,
    telemetry: Annotated[
        str | None,
        typer.Option(
            "--telemetry",
            metavar="DIR",
            help="Where it records what it does: a directory, or an address such as s3://bucket/lake. Default: the"
            " folder telemetry in its data directory.",
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[
        Format, typer.Option("--log-format", help="How the log on standard error looks.")
    ] = Format.TEXT,
    log_level: Annotated[Level, typer.Option("--log-level", help="What of less weight is not logged.")] = Level.INFO,
    supervised: Annotated[
        bool, typer.Option("--supervised", hidden=True, help="End when standard input ends, leave when it says so.")
    ] = False,
) -> None:
    """Run one broker of a network file, until Ctrl-C or SIGTERM."""
    set_up(log_format, log_level)
    with told():
        described = read_network(network)
        chosen = name or _only(described, network)
        where = None if in_memory else data or DATA / chosen
        options = Options(network, chosen, where, not no_sync, emulate, chaos, telemetry)
        uvloop.run(_run(options, described, supervised))


def _only(network: Network, file: Path) -> str:
    names = [one.name for one in network.brokers]
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    raise ConfigError([Fault(str(file), 0, "brokers", f"{len(names)} of them", f"--name with one of {shown}")])


async def _run(options: Options, network: Network, supervised: bool) -> None:
    node = Node(options, network)
    await node.start()
    # What was loaded lives as long as the broker: a search for garbage in it takes tens of milliseconds and finds none.
    gc.collect()
    gc.freeze()
    if supervised:
        await asyncio.get_running_loop().connect_read_pipe(lambda: _Lifeline(node), sys.stdin)
    at = node.endpoints
    known = {"mqtt": at.mqtt, "mqtt_tls": at.mqtt_tls, "websocket": at.websocket, "websocket_tls": at.websocket_tls}
    shown = "  ".join(f"{kind} {endpoint}" for kind, endpoint in known.items() if endpoint is not None)
    print(f"ready  {options.name}  {shown}  admin {at.admin}", flush=True)
    telling = asyncio.create_task(_tell_links(node))
    await node.run()
    telling.cancel()
    if node.unwritten is not None:
        raise node.unwritten


async def _tell_links(node: Node) -> None:
    await node.overlay.linked.wait()
    print(f"linked  {', '.join(node.overlay.neighbours) or 'with nobody'}", flush=True)


class _Lifeline(asyncio.Protocol):
    """Who started us is gone when this ends; the one thing it ever says is that we are to leave."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def data_received(self, data: bytes) -> None:  # noqa: ARG002
        self._node.leave()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._node.end_soon()
