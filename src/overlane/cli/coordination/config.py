"""`overlane config`: the configuration of an overlay in ZooKeeper. Brokers without a file follow it."""

import asyncio
import difflib
import getpass
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from overlane.cli.coordination.where import File, Where, with_zookeeper
from overlane.cli.exit_status import exit_on_error
from overlane.coordination.client import coordination_client
from overlane.coordination.config_store import push_config, read_config
from overlane.coordination.contract import DATA_BYTES_MAX
from overlane.coordination.records import ConfigRecord
from overlane.coordination.zookeeper import Access
from overlane.errors import ConfigError, Fault, Unavailable
from overlane.network.reading import parse_network

DIFFERENT = 1
TEXT_BYTES_MAX = DATA_BYTES_MAX // 2
Result = TypeVar("Result")

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Keep the configuration of an overlay in ZooKeeper.")

ConfigFile = Annotated[Path, typer.Argument(metavar="NETWORK.toml", help="Network file.", show_default=False)]


@app.command()
@with_zookeeper
def push(
    where: Where,
    file: ConfigFile,
    over: Annotated[
        int | None,
        typer.Option("--over", min=0, help="Push only if this version is current (0: none yet).", show_default=False),
    ] = None,
) -> None:
    """Push a network file. All brokers without a file of their own follow it. An invalid file is refused."""
    with exit_on_error():
        text = _checked(file)
        access = where.access(file)
        record = _run(_push(access, text, over))
    typer.echo(f"version {record.version}")


@app.command()
@with_zookeeper
def pull(
    where: Where,
    file: File = None,
) -> None:
    """Print the configuration that is in ZooKeeper."""
    with exit_on_error():
        record = _run(_pull(where.access(file)))
        if record is None:
            raise Unavailable("configuration", "nothing has been pushed")
    typer.echo(record.text, nl=False)


@app.command()
@with_zookeeper
def diff(
    where: Where,
    file: ConfigFile,
) -> None:
    """Compare the configuration in ZooKeeper with a network file. Exit status: 0 the same, 1 different."""
    with exit_on_error():
        text = _checked(file)
        record = _run(_pull(where.access(file)))
    before = "" if record is None else record.text
    named = f"ZooKeeper, version {record.version if record is not None else 0}"
    lines = difflib.unified_diff(before.splitlines(), text.splitlines(), named, str(file), lineterm="")
    for line in lines:
        typer.echo(line)
    if before != text:
        raise typer.Exit(DIFFERENT)


def _checked(file: Path) -> str:
    """The text of a file that a broker would accept. ConfigError."""
    try:
        content = file.read_bytes()
    except OSError as error:
        found = f"no way to read it ({error.strerror})"
        raise ConfigError([Fault(str(file), 0, "", found, "a readable TOML file")]) from None
    if len(content) > TEXT_BYTES_MAX:
        raise ConfigError([Fault(str(file), 0, "", f"{len(content)} bytes", f"at most {TEXT_BYTES_MAX} in ZooKeeper")])
    parse_network(content, str(file), file.absolute().parent, needs_brokers=False)
    return content.decode()


def _run(work: Coroutine[object, object, Result]) -> Result:
    return asyncio.run(work)


async def _push(access: Access, text: str, over: int | None) -> ConfigRecord:
    async with coordination_client(access) as session:
        return await push_config(session, text, f"{getpass.getuser()}@{socket.gethostname()}", over)


async def _pull(access: Access) -> ConfigRecord | None:
    async with coordination_client(access) as session:
        return await read_config(session)
