"""Changes of where brokers run: to move one to another host of its domain, and to give all copies of one up."""

import asyncio

from overlane.coordination.client import CoordinationClient, coordination_client
from overlane.coordination.contract import Create, Delete, Done, Replace
from overlane.coordination.reading import read_overview
from overlane.coordination.records import MalformedRecord
from overlane.coordination.zookeeper import Access
from overlane.errors import ConfigError, Fault, Unavailable
from overlane.recovery.hosts.host_records import HOSTS, MIRRORS, MOVES, MoveRecord, encode_record
from overlane.recovery.replica_set import ReplicaSet, decode_set, encode_set, replica_path

LOOK_S = 0.1


async def replica_set_of(session: CoordinationClient, broker: str) -> ReplicaSet | None:
    node = await session.read(replica_path(broker))
    try:
        return None if node is None else decode_set(replica_path(broker), node.data)
    except MalformedRecord:
        return None


# Moving


async def move_broker(access: Access, name: str, host: str, within_s: int) -> int:
    """The epoch in which it is there. ConfigError or Unavailable."""
    async with coordination_client(access) as session:
        domain, hosts = await _domain_of(session, name, "move")
        if host not in hosts:
            allowed = f"one of {', '.join(sorted(hosts)) or 'none, since no host of the domain is there'}"
            raise ConfigError([Fault("overlane recovery move", 0, "HOST", f'"{host}"', allowed)])
        path, data = f"{MOVES}/{domain}/{name}", encode_record(MoveRecord(host))
        if not isinstance(await session.change(Create(path, data)), Done):
            await session.change(Replace(path, data))
        for _ in range(int(within_s / LOOK_S)):
            value = await replica_set_of(session, name)
            if value is not None and value.primary_host == host and await session.read(path) is None:
                return value.epoch
            await asyncio.sleep(LOOK_S)
    raise Unavailable(f"broker {name}", f"not at {host} within {within_s} s; it still moves there when it can")


async def _domain_of(session: CoordinationClient, name: str, command: str) -> tuple[str, set[str]]:
    for domain in await session.names(MIRRORS):
        if name in await session.names(f"{MIRRORS}/{domain}"):
            return domain, set(await session.names(f"{HOSTS}/{domain}"))
    raise ConfigError([Fault(f"overlane recovery {command}", 0, "NAME", f'"{name}"', "a broker with mirrors")])


# Forgetting


async def what_is_lost(access: Access, name: str) -> str:
    """ConfigError where there is nothing to forget, or its own host serves it."""
    async with coordination_client(access) as session:
        domain, hosts = await _domain_of(session, name, "forget")
        value = await replica_set_of(session, name)
        is_served = name in (await read_overview(session)).brokers
    if is_served and name in hosts and (value is None or value.primary_host == name):
        allowed = f"a broker that its own host does not serve: stop {name} first"
        raise ConfigError([Fault("overlane recovery forget", 0, "NAME", f'"{name}"', allowed)])
    if value is None or value.is_forgotten:
        return f"{name} of domain {domain} has no replica set."
    copies = ", ".join(copy.host for copy in value.in_sync)
    served = f"is served by {value.primary_host}" if is_served else "is not served"
    return f"{name} of domain {domain} {served}; complete copies were at {copies}."


async def forget_broker(access: Access, name: str) -> None:
    async with coordination_client(access) as session:
        domain, _ = await _domain_of(session, name, "forget")
        # The set first: whoever serves the broker stops at once. Then hosts end the processes of its mirrors.
        while (node := await session.read(replica_path(name))) is not None:
            value = decode_set(replica_path(name), node.data)
            changed = Replace(replica_path(name), encode_set(value.forgotten()), node.version)
            if value.is_forgotten or isinstance(await session.change(changed), Done):
                break
        for path in (f"{MIRRORS}/{domain}/{name}", f"{MOVES}/{domain}/{name}"):
            if await session.read(path) is not None:
                await session.change(Delete(path))
