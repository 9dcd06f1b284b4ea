"""`overlane drain` and `overlane undrain`: brokers that carry no items, by the word of an operator."""

import asyncio
from typing import Annotated

import typer

from overlane.cli.coordination.where import File, Where, with_zookeeper
from overlane.cli.exit_status import fail
from overlane.coordination.client import CoordinationClient, coordination_client
from overlane.coordination.contract import Create, Delete
from overlane.coordination.records import MalformedRecord
from overlane.coordination.zookeeper import Access
from overlane.errors import ConfigError, Fault, Unavailable
from overlane.items.policy import ItemPolicy
from overlane.items.records import ITEMS, Paths, decode

LOOK_S = 0.1

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the broker.")]
Within = Annotated[int, typer.Option("--within", min=0, help="Timeout in seconds.")]


@with_zookeeper
def drain(where: Where, name: Name, file: File = None, within: Within = 30) -> None:
    """Move all items away from a broker, so that it can be stopped. Clients that follow the directory leave it."""
    typer.echo(_run(where, file, name, within, is_drained=True))


@with_zookeeper
def undrain(where: Where, name: Name, file: File = None, within: Within = 30) -> None:
    """Allow items on a drained broker again."""
    typer.echo(_run(where, file, name, within, is_drained=False))


def _run(where: Where, file: File, name: str, within_s: int, *, is_drained: bool) -> str:
    try:
        return asyncio.run(_change(where.access(file), name, within_s, is_drained))
    except (ConfigError, Unavailable) as error:
        fail(error)


async def _change(access: Access, name: str, within_s: int, is_drained: bool) -> str:
    async with coordination_client(access) as session:
        paths = await _paths_of(session, name)
        path = f"{paths.drained}/{name}"
        known = await session.names(paths.agents)
        drained = await session.names(paths.drained)
        if is_drained and not set(known) - set(drained) - {name}:
            raise ConfigError([Fault("overlane drain", 0, "NAME", f'"{name}"', "a broker beside another that is left")])
        if is_drained != (name in drained):
            await session.change(Create(path) if is_drained else Delete(path))
        for _ in range(max(1, int(within_s / LOOK_S))):
            policy = await _policy(session, paths)
            if policy is not None and (name in policy.off) == is_drained:
                count = sum(name in (place.primary, place.mirror) for place in policy.places.values())
                return f"{name} carries {count} items, epoch {policy.epoch}"
            await asyncio.sleep(LOOK_S)
    raise Unavailable("the management agents", f"no new placement within {within_s} s; the request stays")


async def _paths_of(session: CoordinationClient, name: str) -> Paths:
    for domain in await session.names(ITEMS):
        paths = Paths(domain)
        if name in {*await session.names(paths.agents), *await session.names(paths.drained)}:
            return paths
    raise ConfigError([Fault("overlane drain", 0, "NAME", f'"{name}"', "a broker of a domain with [items] that runs")])


async def _policy(session: CoordinationClient, paths: Paths) -> ItemPolicy | None:
    node = await session.read(paths.policy)
    try:
        return None if node is None else decode(paths.policy, node.data, ItemPolicy)
    except MalformedRecord as error:
        raise Unavailable("the management agents", str(error)) from None
