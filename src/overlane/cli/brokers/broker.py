"""`overlane broker`: run one broker of a network file, or one whose configuration is in ZooKeeper."""

import asyncio
import gc
import os
import sys
from collections.abc import Coroutine
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import uvloop

from overlane.cli.brokers.supervisor_pipe import SupervisorPipe
from overlane.cli.exit_status import exit_on_error
from overlane.cli.parameters import Argument, Option
from overlane.errors import ConfigError, Fault, Unavailable
from overlane.extras import is_installed, missing_extra
from overlane.network.reading import read_network
from overlane.network.schema import Coordination, Network
from overlane.node.coordination.options import SOURCE, Own, own_of, own_of_file
from overlane.node.logs.lines import Format, Level, set_up
from overlane.node.node import Node
from overlane.node.options import Options
from overlane.node.supervision.service_manager import service_manager

if TYPE_CHECKING:
    from overlane.node.recovery.hosting import Hosting

DATA = Path("overlane-data")
READY, WAITING = "ready", "waiting"
WAITING_EVERY_S = 2.0
"""How often a broker tells its supervisor which links are missing."""


class Role(StrEnum):
    EDGE = "edge"
    ROUTING = "routing"
    BACKUP = "backup"
    PLAIN = "plain"


LIVES_MAX = 4
"""How often a broker begins anew because others know a later life of it: a liar must not keep it busy."""


def broker(
    network: Annotated[
        Path | None,
        Argument(help="Network file; none with --zookeeper.", metavar="[NETWORK.toml]", show_default=False),
    ] = None,
    name: Annotated[str, Option("--name", help="Name of the broker; required if the file has several.")] = "",
    zookeeper: Annotated[
        str,
        Option(
            "--zookeeper",
            metavar="HOSTS",
            help="Addresses of ZooKeeper, HOST:PORT separated by commas; the configuration is read from there.",
        ),
    ] = "",
    path: Annotated[str, Option("--path", help="Root path of the overlay in ZooKeeper.")] = "/overlane",
    role: Annotated[Role | None, Option("--role", help="Role, with --zookeeper.", show_default=False)] = None,
    domain: Annotated[str, Option("--domain", help="Domain, with --zookeeper (default: a separate domain).")] = "",
    mqtt: Annotated[str, Option("--mqtt", metavar="HOST:PORT", help="Address for clients.")] = "",
    overlay: Annotated[str, Option("--overlay", metavar="HOST:PORT", help="Address for other brokers.")] = "",
    admin: Annotated[str, Option("--admin", metavar="HOST:PORT", help="Address of the admin API.")] = "",
    zookeeper_user: Annotated[str, Option("--zookeeper-user", help="User at ZooKeeper (SASL digest).")] = "",
    zookeeper_password: Annotated[
        Path | None, Option("--zookeeper-password", help="File with the password of that user.")
    ] = None,
    zookeeper_ca: Annotated[
        Path | None, Option("--zookeeper-ca", help="Certificate authority of ZooKeeper; enables TLS.")
    ] = None,
    zookeeper_certificate: Annotated[
        Path | None, Option("--zookeeper-certificate", help="Client certificate for ZooKeeper.")
    ] = None,
    zookeeper_key: Annotated[Path | None, Option("--zookeeper-key", help="Key of that certificate.")] = None,
    data: Annotated[Path | None, Option("--data", help="Data directory (default: overlane-data/NAME).")] = None,
    in_memory: Annotated[bool, Option("--in-memory", help="Store nothing on disk; all state is lost on exit.")] = False,
    no_sync: Annotated[
        bool,
        Option("--no-sync", help="Do not wait for the disk; a power failure may lose acknowledged messages."),
    ] = False,
    emulate: Annotated[
        bool, Option("--emulate", help="Emulate link latency, jitter, loss and rate as the file gives them.")
    ] = False,
    chaos: Annotated[bool, Option("--chaos", help="Allow the admin API to slow, cut and heal links.")] = False,
    telemetry: Annotated[
        str | None,
        Option(
            "--telemetry",
            metavar="DIR",
            help="Where to write telemetry: a directory, or a URL such as s3://bucket/lake (default: the directory"
            " telemetry inside the data directory).",
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[Format, Option("--log-format", help="Log format on standard error.")] = Format.TEXT,
    log_level: Annotated[Level, Option("--log-level", help="Minimum log level.")] = Level.INFO,
    supervised: Annotated[
        bool,
        Option(
            "--supervised",
            hidden=True,
            help="Shut down when standard input closes; leave the overlay when a byte arrives on it.",
        ),
    ] = False,
    hosted: Annotated[
        str,
        Option("--hosted", hidden=True, help="Keep a copy of another broker, and take it over when it is lost."),
    ] = "",
    relative_to: Annotated[
        Path | None,
        Option(
            "--relative-to", hidden=True, help="Base directory for relative paths in the configuration from ZooKeeper."
        ),
    ] = None,
) -> None:
    """Run one broker of a network file until Ctrl-C or SIGTERM."""
    set_up(log_format, log_level)
    with exit_on_error():
        if network is None:
            access = Coordination(
                zookeeper=_hosts(zookeeper),
                path=path,
                user=zookeeper_user or None,
                password_file=_text(zookeeper_password),
                ca=_text(zookeeper_ca),
                certificate=_text(zookeeper_certificate),
                key=_text(zookeeper_key),
            )
            addresses = {"mqtt": mqtt, "overlay": overlay, "admin": admin}
            own = own_of(name, access, role.value if role is not None else None, domain, addresses, relative_to)
            where = None if in_memory else data or DATA / name
            options = Options(Path(SOURCE), name, where, not no_sync, emulate, chaos, telemetry, own)
            uvloop.run(_watched(_run_without_file(options, own, supervised, hosted)))
            return
        _refuse_without_zookeeper(zookeeper, role, domain, mqtt, overlay, admin)
        described = read_network(network)
        if described.coordination is not None:
            _require_kazoo()
        chosen = name or _only_broker(described, network)
        where = None if in_memory else data or DATA / chosen
        if (of_file := own_of_file(described, chosen, network.absolute().parent)) is not None:
            options = Options(Path(SOURCE), chosen, where, not no_sync, emulate, chaos, telemetry, of_file)
            uvloop.run(_watched(_run_without_file(options, of_file, supervised, hosted)))
            return
        options = Options(network, chosen, where, not no_sync, emulate, chaos, telemetry)
        uvloop.run(_watched(_run(options, described, supervised, hosted)))


def _hosts(zookeeper: str) -> str:
    if not zookeeper:
        raise ConfigError([Fault("overlane broker", 0, "", "neither", "a network file, or --zookeeper HOSTS")])
    return zookeeper


def _require_kazoo() -> None:
    if not is_installed("kazoo"):
        raise Unavailable("coordination", missing_extra("kazoo", "coordination"))


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None


def _refuse_without_zookeeper(*given: object) -> None:
    if any(given):
        found, allowed = (
            "options for a broker without a file",
            "--zookeeper and no network file, or a network file alone",
        )
        raise ConfigError([Fault("overlane broker", 0, "", found, allowed)])


async def _watched(life: Coroutine[None, None, None]) -> None:
    """With signs of life for the service manager, where there is one."""
    signs = asyncio.create_task(service_manager().keep_alive())
    try:
        await life
    finally:
        signs.cancel()


async def _run_without_file(options: Options, own: Own, supervised: bool, hosted: str) -> None:
    _require_kazoo()
    # Only here: a broker of a file does without kazoo.
    from overlane.node.coordination.starting import first_network

    pipe = SupervisorPipe()
    if hosted or supervised:
        # ZooKeeper may be waited for, and whoever has started this process may end meanwhile. Nothing is open yet.
        pipe.end = pipe.leave = lambda: os._exit(0)
        await pipe.connect()
    network, config = await first_network(own, options.data)
    await _run(replace(options, config=config), network, supervised, hosted, pipe)


def _only_broker(network: Network, file: Path) -> str:
    names = [one.name for one in network.brokers]
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    raise ConfigError([Fault(str(file), 0, "brokers", f"{len(names)} of them", f"--name with one of {shown}")])


async def _run(
    options: Options, network: Network, supervised: bool, hosted: str, pipe: SupervisorPipe | None = None
) -> None:
    """One life of the broker, or several: where others know a later one than its own, or a configuration is pushed."""
    pipe = pipe if pipe is not None else SupervisorPipe()
    incarnation: int | None = 0
    for _ in range(LIVES_MAX):
        if incarnation is None:
            break
        if network.recovery.mirrors and network.coordination is not None:
            await _run_mirrored(options, network, supervised, hosted, pipe)
            break
        node = Node(options, network, incarnation)
        pipe.end, pipe.leave = node.end_soon, node.leave
        await _live(node, READY, pipe if supervised else None)
        incarnation, network = node.begins_anew_with, node.network


async def _run_mirrored(
    options: Options, network: Network, supervised: bool, hosted: str, pipe: SupervisorPipe
) -> None:
    if options.data is None:
        found, allowed = "--in-memory", "a data directory, since [recovery] has mirrors"
        raise ConfigError([Fault("overlane broker", 0, "", found, allowed)])
    # Only here: most brokers do without.
    from overlane.node.recovery.hosting import hosting

    await _run_host(hosting(options, network, hosted, _live, _print_waiting), pipe if supervised else None)


async def _run_host(host: "Hosting", pipe: SupervisorPipe | None) -> None:
    if pipe is not None:
        pipe.end, pipe.leave = host.end_soon, host.leave
        await pipe.connect()
    await host.run()


def _print_waiting(name: str, why: str) -> None:
    """As a broker that serves: whoever has started it need not wait for more."""
    print(f"{READY}  {name}  {why}\nlinked  without neighbours", flush=True)
    service_manager().ready(why)


async def _live(node: Node, word: str = READY, pipe: SupervisorPipe | None = None) -> None:
    await node.start()
    # Everything loaded so far lives as long as the broker: collecting it takes tens of milliseconds and frees nothing.
    gc.collect()
    gc.freeze()
    if pipe is not None:
        await pipe.connect()
    at = node.endpoints
    shown = "  ".join(f"{kind} {endpoint}" for kind, endpoint in at.listeners.items())
    _say(f"{word}  {node.options.name}  {shown}  admin {at.admin}", node)
    manager = service_manager()
    manager.ready(f"serves as {node.options.name}")
    manager.gets_on = lambda: not node.driver.is_stuck
    printing = asyncio.create_task(_print_links(node, pipe is not None)) if word == READY else None
    await node.run()
    if printing is not None:
        printing.cancel()
    if node.unwritten is not None:
        raise node.unwritten


async def _print_links(node: Node, is_supervised: bool) -> None:
    while is_supervised and not node.overlay.linked.is_set():
        try:
            async with asyncio.timeout(WAITING_EVERY_S):
                await node.overlay.linked.wait()
        except TimeoutError:
            _say(f"{WAITING}  for links to {', '.join(node.overlay.missing)}", node)
    await node.overlay.linked.wait()
    _say(f"linked  {', '.join(node.overlay.neighbours) or 'without neighbours'}", node)


def _say(text: str, node: Node) -> None:
    """On standard output. Where nobody reads it any more, whoever has started the broker is gone, and it ends."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        node.end_soon()
