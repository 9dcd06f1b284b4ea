"""Hosts that change their address while they run: others find them, and mirrors dial again."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any, cast

import pytest

from overlane.core.units import MS
from overlane.membership.endpoint import Endpoint
from overlane.node.recovery.hosts.directory import HostDirectory
from overlane.node.recovery.hosts.own_endpoint import OwnEndpoint
from overlane.node.recovery.hosts.primary_watch import PrimaryWatch
from overlane.node.recovery.replication.replica_driver import ReplicaDriver
from overlane.node.recovery.replication.replication import ReplicaIdentity, Replication
from overlane.recovery.events import Event, PrimaryLost
from overlane.recovery.hosts.host_records import HostRecord
from overlane.recovery.hosts.watching import WatchSettings
from overlane.recovery.replica_set import Copy, ReplicaSet
from overlane.recovery.replication.stored_record import Stored
from overlane.secret import Secret
from waiting import eventually_async

SECRET = Secret(b"a secret of sixteen bytes or more")
SET = ReplicaSet(3, 1, (Copy(1, "seattle"), Copy(2, "spare")))
OWN = Stored(2)
HOSTS = ("seattle", "spare")
SETTINGS = WatchSettings(silence=3_000 * MS, suspect=300 * MS)
QUICK = WatchSettings(silence=60 * MS, suspect=30 * MS)


def test_a_host_that_listens_on_all_addresses_announces_the_one_by_which_it_is_reached_when_that_changes() -> None:
    async def go() -> None:
        announced: list[str] = []
        hosts = ["10.0.0.7"]
        endpoint = OwnEndpoint(Endpoint("0.0.0.0", 7000), lambda: hosts[-1] or None, "here", announced.append)
        for host in ("10.0.0.7", "", "192.168.1.5"):  # as before; no way at present; another
            hosts.append(host)
            endpoint.look_again()
            looking = endpoint._looking
            assert looking is not None
            await looking
        assert announced == ["10.0.0.7:7000", "192.168.1.5:7000"]
        endpoint.close()
        OwnEndpoint(Endpoint("10.0.0.9", 7000), lambda: "10.0.0.7", "here", announced.append).close()
        assert announced[-1] == "10.0.0.9:7000"

    asyncio.run(go())


class Path:
    """A way to an address whose connections can die silently, as those of a machine that has moved do."""

    def __init__(self, to: Endpoint) -> None:
        self._to = to
        self._pipes: list[asyncio.Task[None]] = []
        self.connections = 0
        self.is_dead = False
        """Whether new connections carry nothing either."""
        self.at = ""

    async def open(self) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.at = "{}:{}".format(*server.sockets[0].getsockname()[:2])

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.is_dead:
            return
        to_reader, to_writer = await asyncio.open_connection(self._to.host, self._to.port)
        for pair in ((reader, to_writer), (to_reader, writer)):
            self._pipes.append(asyncio.create_task(_pipe(*pair)))

    def freeze(self) -> None:
        """What is open carries nothing any more, and is not closed."""
        for pipe in self._pipes:
            pipe.cancel()
        self._pipes.clear()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)


@dataclass
class Mirror:
    """As much of a replica's driver as the watch needs: a mirror at `spare`, whose primary is at `seattle`."""

    events: list[Event]
    broker: str = "seattle"
    host: str = "spare"
    is_primary: bool = False
    replica_set: ReplicaSet = SET
    stored: Stored = OWN

    @property
    def replica(self) -> "Mirror":
        return self

    @property
    def storage(self) -> "Mirror":
        return self

    def handle(self, event: Event) -> None:
        self.events.append(event)

    now = staticmethod(monotonic_ns)


def test_a_mirror_whose_connection_is_dead_and_whose_primary_lives_dials_again_and_does_not_take_over() -> None:
    async def go() -> None:
        primary, neighbour, own = (
            Replication(ReplicaIdentity(broker, host, SECRET, is_open=False), 1 << 20)
            for broker, host in (("seattle", "seattle"), ("denver", "denver"), ("seattle", "spare"))
        )
        path = Path(await primary.listen("127.0.0.1"))
        await path.open()

        async def reaches(_: str) -> int:
            return 0

        neighbour.heard_ago_ns = reaches
        directory = HostDirectory("west")
        directory.hosts = {name: HostRecord("edge") for name in ("denver", "seattle", "spare")}
        denver = await neighbour.listen("127.0.0.1")
        directory.endpoints = {"seattle@seattle": path.at, "denver@denver": str(denver)}
        driver = Mirror([])
        watch = PrimaryWatch(cast(ReplicaDriver, cast(Any, driver)), directory, own, SETTINGS)
        own.on_sign_of_life = watch.heard
        await eventually_async(lambda: primary.is_linked("spare"), "they are linked", 60)
        path.freeze()
        await eventually_async(lambda: path.connections >= 2, "it dials again", 60)
        await eventually_async(lambda: own.is_linked("seattle"), "they are linked again", 60)
        assert driver.events == []
        watch.end()
        for one in (primary, neighbour, own):
            one.close()

    asyncio.run(go())


def test_a_silent_primary_is_reported_again_and_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        primary, own = (Replication(ReplicaIdentity("seattle", host, SECRET, is_open=False), 1 << 20) for host in HOSTS)
        path = Path(await primary.listen("127.0.0.1"))
        await path.open()
        directory = HostDirectory("west")
        directory.hosts = {name: HostRecord("edge") for name in HOSTS}
        directory.endpoints = {"seattle@seattle": path.at}
        driver = Mirror([])
        watch = PrimaryWatch(cast(ReplicaDriver, cast(Any, driver)), directory, own, QUICK)
        own.on_sign_of_life = watch.heard
        await eventually_async(lambda: primary.is_linked("spare"), "they are linked", 60)
        path.is_dead = True
        path.freeze()
        await eventually_async(lambda: len(driver.events) >= 4, "it is told again and again", 60)
        assert set(driver.events) == {PrimaryLost(3)}
        watch.end()
        for one in (primary, own):
            one.close()

    asyncio.run(go())
    assert [one.message for one in caplog.records if "silent" in one.message] == [
        "seattle is silent; no other host has reached it"
    ]


@pytest.mark.parametrize("who", ["the primary", "this host", "nobody knows"])
def test_a_mirror_dials_again_when_one_of_the_two_has_moved_though_there_is_nobody_to_ask(who: str) -> None:
    async def go() -> None:
        primary, own = (Replication(ReplicaIdentity("seattle", host, SECRET, is_open=False), 1 << 20) for host in HOSTS)
        at = await primary.listen("127.0.0.1")
        path, other = Path(at), Path(at)
        await path.open()
        await other.open()
        directory = HostDirectory("west")
        directory.hosts = {name: HostRecord("edge") for name in HOSTS}
        directory.endpoints = {"seattle@seattle": path.at}
        driver = Mirror([])
        settings = QUICK if who == "nobody knows" else SETTINGS
        watch = PrimaryWatch(cast(ReplicaDriver, cast(Any, driver)), directory, own, settings)
        own.on_sign_of_life = watch.heard
        await eventually_async(lambda: primary.is_linked("spare"), "they are linked", 60)
        path.freeze()
        if who == "the primary":
            directory.endpoints = {"seattle@seattle": other.at}
        elif who == "this host":
            watch.moved()
        followed = other if who == "the primary" else path
        before = 0 if who == "the primary" else 1
        await eventually_async(lambda: followed.connections > before, "it dials again", 60)
        await eventually_async(lambda: own.is_linked("seattle"), "they are linked again", 60)
        watch.end()
        for one in (primary, own):
            one.close()

    asyncio.run(go())
