"""`overlane gateway`: run one gateway of a network file."""

import asyncio
import logging
import signal
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from overlane.cli.brokers.supervisor_pipe import SupervisorPipe
from overlane.cli.exit_status import exit_on_error
from overlane.errors import ConfigError, Fault, Unavailable
from overlane.gateways.dds.running import RunningDdsGateway
from overlane.gateways.running import RunningGateway
from overlane.network.endpoints import endpoints
from overlane.network.reading import read_network
from overlane.network.schema import DdsGateway, Gateway, Network
from overlane.node.logs.lines import Format, Level, set_up

log = logging.getLogger("overlane.gateway")


def gateway(
    network: Annotated[Path, typer.Argument(help="Network file.", metavar="NETWORK.toml", show_default=False)],
    name: Annotated[str, typer.Option("--name", help="Name of the gateway; required if the file has several.")] = "",
    log_format: Annotated[Format, typer.Option("--log-format", help="Log format on standard error.")] = Format.TEXT,
    log_level: Annotated[Level, typer.Option("--log-level", help="Minimum log level.")] = Level.INFO,
    supervised: Annotated[
        bool, typer.Option("--supervised", hidden=True, help="Shut down when standard input closes.")
    ] = False,
) -> None:
    """Run one gateway of a network file until Ctrl-C or SIGTERM: messages to and from a foreign broker."""
    set_up(log_format, log_level)
    with exit_on_error():
        found = read_network(network)
        dds = next((one for one in found.dds if one.name == name or (not name and not found.gateways)), None)
        chosen = _chosen(found, name, str(network)) if dds is None else dds
        uvloop.run(_run(network, chosen.name, supervised))


async def _run(file: Path, name: str, supervised: bool) -> None:
    """SIGHUP reads the file again; the gateway begins anew if the brokers or gateways in it have changed."""
    ended, reload = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    if supervised:
        await SupervisorPipe(ended.set, ended.set).connect()
    network = read_network(file)
    is_told = False
    while not ended.is_set():
        chosen = _chosen(network, name, str(file))
        running = _running(network, chosen, str(file))
        if not is_told:
            is_told = True
            to = f"DDS domain {chosen.domain}" if isinstance(chosen, DdsGateway) else chosen.to
            print(f"ready  {name}  {chosen.broker} and {to}\nlinked  {to}", flush=True)
        over = asyncio.Event()
        watching = asyncio.create_task(_watch(file, network, name, ended, reload, over))
        try:
            await running.run(over)
        finally:
            watching.cancel()
            await asyncio.wait((watching,))
        if not ended.is_set():
            network = watching.result()


async def _watch(
    file: Path, network: Network, name: str, ended: asyncio.Event, reload: asyncio.Event, over: asyncio.Event
) -> Network:
    """Until the gateway has to end, or to begin anew by what the file says now."""
    while True:
        waits = [asyncio.create_task(one.wait()) for one in (ended, reload)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        if ended.is_set():
            over.set()
            return network
        reload.clear()
        try:
            now = read_network(file)
            _chosen(now, name, str(file))
        except (ConfigError, Unavailable) as error:
            log.error("configuration unchanged: %s", error.with_code())
            continue
        if (now.gateways, now.dds, now.brokers) != (network.gateways, network.dds, network.brokers):
            over.set()
            return now


def _running(network: Network, chosen: Gateway | DdsGateway, file: str) -> RunningGateway | RunningDdsGateway:
    if isinstance(chosen, Gateway):
        return RunningGateway(network, chosen, file)
    mqtt = endpoints(network, chosen.broker, file).mqtt
    reached = "127.0.0.1" if mqtt.is_wildcard() else mqtt.host
    return RunningDdsGateway(chosen, f"{reached}:{mqtt.port}")


def _chosen(network: Network, name: str, file: str) -> Gateway | DdsGateway:
    if (dds := next((one for one in network.dds if one.name == name), None)) is not None:
        return dds
    names = [one.name for one in network.gateways]
    if not name and len(names) == 1:
        return network.gateways[0]
    if name in names:
        return network.gateways[names.index(name)]
    if not names:
        raise ConfigError([Fault(file, 0, "gateways", "nothing", "at least one table [[gateways]]")])
    found = f'no gateway "{name}"' if name else f"{len(names)} of them"
    meant = "".join(get_close_matches(name, names, n=1))
    raise ConfigError([Fault(file, 0, "gateways", found, f"--name with one of {', '.join(names[:20])}", meant)])
