"""`overlane recovery`: where brokers run, which hosts have copies of them; to move a broker to another host, and to
forget one."""

import asyncio
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape

from overlane.adminapi.client import RequestFailed, request
from overlane.adminapi.views import RecoveryView
from overlane.cli.coordination.relocation import forget_broker, move_broker, replica_set_of, what_is_lost
from overlane.cli.coordination.where import Where, with_zookeeper
from overlane.cli.exit_status import exit_on_error
from overlane.cli.output import AsJson, TokenFile, Watch
from overlane.cli.tables import OutputConsole, Wide, table
from overlane.coordination.client import CoordinationClient, coordination_client
from overlane.coordination.reading import read_overview
from overlane.coordination.records import BrokerRecord, MalformedRecord
from overlane.coordination.zookeeper import Access
from overlane.network.schema import Endpoint
from overlane.recovery.hosts.host_records import (
    HOSTS,
    MIRRORS,
    MOVES,
    HostRecord,
    MirrorsRecord,
    MoveRecord,
    decode_record,
)
from overlane.recovery.replica_set import ReplicaSet
from overlane.secret import Secret
from overlane.secret_file import read_token

EVERY_S = 1.0
LAG_S = 1.0
"""How long a broker may take to tell its lag."""

Record = TypeVar("Record", HostRecord, MirrorsRecord, MoveRecord)

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    help="Show where brokers run, which hosts have copies of them, and move a broker to another host.",
)

NetworkFile = Annotated[
    Path | None,
    typer.Option(
        "--file", metavar="NETWORK.toml", help="Network file with the addresses of ZooKeeper.", show_default=False
    ),
]


class Mirror(msgspec.Struct, frozen=True):
    host: str
    in_sync: bool
    lag_batches: int | None = None
    lag_bytes: int | None = None
    """None: the broker did not tell."""
    lag_ms: float | None = None
    heard_ms: float | None = None


class Row(msgspec.Struct, frozen=True):
    """One broker."""

    broker: str
    domain: str
    host: str
    """On which it runs; empty where no replica set is there."""
    epoch: int
    mirrors: tuple[Mirror, ...]
    candidates: dict[str, float]
    """Hosts of the domain that are there, with their scores."""
    move_to: str
    """Empty unless an operator wants it elsewhere."""


@app.callback()
@with_zookeeper
def recovery(
    where: Where,
    context: typer.Context,
    file: NetworkFile = None,
    as_json: AsJson = False,
    watch: Watch = False,
    wide: Wide = False,
    token_file: TokenFile = None,
) -> None:
    """Show where brokers run, which hosts have copies of them, and move a broker to another host."""
    if context.invoked_subcommand is not None:
        return
    with exit_on_error():
        access = where.access(file)
        token = read_token(token_file) if token_file is not None else None
        try:
            asyncio.run(_poll(access, token, as_json, watch, wide))
        except KeyboardInterrupt:
            return


@app.command()
@with_zookeeper
def move(
    where: Where,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Broker.", show_default=False)],
    host: Annotated[str, typer.Argument(metavar="HOST", help="New host, in the same domain.", show_default=False)],
    file: NetworkFile = None,
    within: Annotated[int, typer.Option("--within", min=1, help="Timeout in seconds.")] = 60,
) -> None:
    """Move a broker to another host of its domain: it gets a copy, if it has none, and continues the broker."""
    with exit_on_error():
        access = where.access(file)
        epoch = asyncio.run(move_broker(access, name, host, within))
    typer.echo(f"{name} runs at {host}, epoch {epoch}")


@app.command()
@with_zookeeper
def forget(
    where: Where,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Broker.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    file: NetworkFile = None,
) -> None:
    """Forget a broker: its mirrors end, and nobody continues it. To remove it for good, or to let it begin anew, empty,
    when all copies are lost."""
    with exit_on_error():
        access = where.access(file)
        told = asyncio.run(what_is_lost(access, name))
        if not yes and not typer.confirm(f"{told} Forget {name}, with all messages that its copies have?"):
            raise typer.Exit(1)
        asyncio.run(forget_broker(access, name))
    typer.echo(f"{name} is forgotten. Its host starts it again, empty, if its data directory is empty")


# Showing


async def _poll(access: Access, token: Secret | None, as_json: bool, watch: bool, wide: bool) -> None:
    console = OutputConsole(wide, is_redrawn=watch)
    async with coordination_client(access) as session:
        if not watch:
            _print(console, await _rows(session, token), as_json)
            return
        with Live(console=console, auto_refresh=False) as live:
            while True:
                rows = await _rows(session, token)
                if console.is_terminal and not as_json:
                    live.update(_render(rows), refresh=True)
                else:
                    _print(console, rows, as_json)
                await asyncio.sleep(EVERY_S)


def _print(console: Console, rows: list[Row], as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode({"items": rows}))
    else:
        console.print(_render(rows))


def _render(rows: list[Row]) -> RenderableType:
    shown = table(
        *("broker", "domain", "host", "epoch", "mirrors", "candidates", ""),
        numbers=("epoch",),
        dropped_first=("epoch", "domain", "candidates"),
        wrapped=("mirrors", "candidates"),
    )
    for row in rows:
        candidates = ", ".join(f"{name} {score:.2f}" for name, score in sorted(row.candidates.items()))
        shown.add_row(
            escape(row.broker),
            escape(row.domain),
            escape(row.host or "-"),
            str(row.epoch),
            escape("; ".join(map(_told, row.mirrors)) or "none"),
            escape(candidates),
            escape(f"moves to {row.move_to}" if row.move_to else ""),
        )
    return shown


def _told(mirror: Mirror) -> str:
    state = "in sync" if mirror.in_sync else "catching up"
    lag = "" if mirror.lag_bytes is None else f", {mirror.lag_bytes} B and {mirror.lag_ms or 0:.0f} ms behind"
    heard = "" if mirror.heard_ms is None else f", heard {mirror.heard_ms:.0f} ms ago"
    return f"{mirror.host} {state}{lag}{heard}"


# Reading


async def _rows(session: CoordinationClient, token: Secret | None) -> list[Row]:
    registered = (await read_overview(session)).brokers
    rows = []
    for domain in await session.names(MIRRORS):
        hosts = await _records(session, f"{HOSTS}/{domain}", HostRecord)
        moves = await _records(session, f"{MOVES}/{domain}", MoveRecord)
        for broker, record in (await _records(session, f"{MIRRORS}/{domain}", MirrorsRecord)).items():
            value = await replica_set_of(session, broker)
            lag = await asyncio.to_thread(_lag, registered.get(broker), token)
            rows.append(_row(broker, domain, record, value, hosts, moves.get(broker), lag))
    return rows


def _row(
    broker: str,
    domain: str,
    record: MirrorsRecord,
    value: ReplicaSet | None,
    hosts: dict[str, HostRecord],
    move_to: MoveRecord | None,
    lag: RecoveryView | None,
) -> Row:
    primary = "" if value is None else value.primary_host
    in_sync = set() if value is None else {copy.host for copy in value.mirrors}
    told = {} if lag is None else {one.host: one for one in lag.mirrors}
    mirrors = []
    for host in sorted(in_sync | set(record.hosts)):
        one = told.get(host)
        mirrors.append(
            Mirror(host, host in in_sync)
            if one is None
            else Mirror(host, host in in_sync, one.lag_batches, one.lag_bytes, one.lag_ms, one.heard_ms)
        )
    candidates = {name: host.score for name, host in sorted(hosts.items()) if name != primary}
    epoch = 0 if value is None else value.epoch
    return Row(broker, domain, primary, epoch, tuple(mirrors), candidates, "" if move_to is None else move_to.host)


async def _records(session: CoordinationClient, parent: str, kind: type[Record]) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for name, node in sorted((await session.children(parent)).items()):
        try:
            found[name] = decode_record(f"{parent}/{name}", node.data, kind)
        except MalformedRecord:
            continue
    return found


def _lag(record: BrokerRecord | None, token: Secret | None) -> RecoveryView | None:
    """As the broker tells it; None where it cannot be asked."""
    if record is None or not record.admin:
        return None
    host, _, port = record.admin.rpartition(":")
    try:
        body = request(Endpoint(host.strip("[]"), int(port)), "GET", "/recovery", token=token, timeout_s=LAG_S)
        return msgspec.json.decode(body, type=RecoveryView)
    except (RequestFailed, msgspec.DecodeError):
        return None
