"""Datagrams beside the connection of two brokers that run: what goes over them, what harms them and what does not."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from relays import Relay

from overlane.client import Client, connect
from overlane.testbed.certificates import Authority
from overlays import RealOverlay
from waiting import eventually_async

pytestmark = pytest.mark.slow

LINK = 'latency = "1ms"'
CLASSES = '\n[topics."alarms/#"]\ndeadline = "500ms"\n'
WITH_SECRET = '\n[security]\noverlay_secret = "{directory}/secret"\n'
MARK = b"nobody else may read this"


class Pair(RealOverlay):
    """Two brokers; a dials b through a relay, and b dials nobody. What is said of the broker b, and in tables."""

    def __init__(self, directory: Path, link: str = LINK, of_b: str = "", tables: str = "") -> None:
        super().__init__(directory, {"a-b": link}, CLASSES + tables)
        self.relay = Relay(self["b"].overlay)
        text = self.file.read_text()
        text = text.replace(self["a"].table(), self["a"].table() + "reach = []\n")
        text = text.replace(self["b"].table(), self["b"].table() + f'reach = ["{self.relay.address}"]\n{of_b}')
        self.file.write_text(text)

    def beside(self, name: str = "a") -> dict[str, object] | None:
        """What the broker tells of the datagrams of its only link."""
        answer = self[name].ask("/links")
        assert isinstance(answer, dict)
        (link,) = answer["items"]
        found: dict[str, object] | None = link["datagrams"]
        return found

    def is_open(self) -> bool:
        states = [(self.beside(name) or {}).get("state") for name in "ab"]
        return states == ["open", "open"]

    def refused(self, name: str) -> dict[str, int]:
        found = (self.beside(name) or {})["refused"]
        assert isinstance(found, dict)
        return found


@contextmanager
def ended(net: Pair) -> Iterator[Pair]:
    try:
        yield net
    finally:
        net.end()


@asynccontextmanager
async def running(net: Pair) -> AsyncIterator[Pair]:
    async with net.relay:
        with ended(net):
            for member in net.members.values():
                member.start()
            linked = lambda: all("linked" in member.log.read_text() for member in net.members.values())  # noqa: E731
            await eventually_async(linked, "linked", 60.0)
            yield net


class Reader:
    """Keeps what arrives at b, and publishes at a."""

    def __init__(self, client: Client, got: list[tuple[str, bytes]]) -> None:
        self._client = client
        self.got = got

    async def send(self, topic: str, *bodies: bytes) -> None:
        for body in bodies:
            await self._client.publish(topic, body)


@asynccontextmanager
async def crossing(net: Pair) -> AsyncIterator[Reader]:
    """Both topics reach b from a."""
    got: list[tuple[str, bytes]] = []
    async with connect(net["b"].mqtt) as there, connect(net["a"].mqtt) as here:
        messages = there.subscribe("alarms/#", "plain/#")

        async def read() -> None:
            async for message in messages:
                got.append((message.topic, bytes(message.body)))

        reading = asyncio.create_task(read())
        while not {"alarms/probe", "plain/probe"} <= {topic for topic, _ in got}:
            await here.publish("alarms/probe", b"")
            await here.publish("plain/probe", b"")
            await asyncio.sleep(0.05)
        yield Reader(here, got)
        reading.cancel()


def numbered(topic: str, got: list[tuple[str, bytes]]) -> list[int]:
    return [int(body) for name, body in got if name == topic]


def test_what_has_a_deadline_goes_in_datagrams_and_the_rest_over_the_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(Pair(tmp_path)) as net, crossing(net) as reader:
            await eventually_async(net.is_open, "open")
            for number in range(50):
                await reader.send("alarms/x", b"%d" % number)
                await reader.send("plain/x", b"%d" % number)
                await asyncio.sleep(0.005)
            await eventually_async(lambda: numbered("alarms/x", reader.got) == list(range(50)), "alarms in order")
            await eventually_async(lambda: numbered("plain/x", reader.got) == list(range(50)), "others in order")
            seen = b"".join(net.relay.seen)
            assert seen.count(b"alarms/x") >= 1
            assert seen.count(b"plain/x") == 0

    asyncio.run(story())


def test_where_datagrams_never_pass_everything_goes_over_the_connection(tmp_path: Path) -> None:
    async def story() -> None:
        net = Pair(tmp_path)
        net.relay.alter = lambda _: []
        async with running(net), crossing(net) as reader:
            await reader.send("alarms/x", *[b"%d" % number for number in range(100)])
            await eventually_async(lambda: numbered("alarms/x", reader.got) == list(range(100)), "all there")
            assert (net.beside("a") or {})["state"] == "probing"

    asyncio.run(story())


def test_nothing_is_lost_when_datagrams_stop_passing_and_they_are_used_again_when_they_pass(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(Pair(tmp_path)) as net, crossing(net) as reader:
            await eventually_async(net.is_open, "open")
            sent = 0

            async def send_until(holds: Callable[[], bool], what: str) -> None:
                nonlocal sent
                least = sent + 60
                for _ in range(3_000):
                    await reader.send("alarms/x", b"%d" % sent)
                    sent += 1
                    await asyncio.sleep(0.01)
                    if sent >= least and sent % 10 == 0 and holds():
                        return
                raise AssertionError(f"not {what}")

            net.relay.alter = lambda _: []
            await send_until(lambda: (net.beside("a") or {})["state"] == "probing", "left")
            net.relay.alter = lambda datagram: [datagram]
            await send_until(net.is_open, "open again")
            await eventually_async(lambda: len(numbered("alarms/x", reader.got)) >= sent, "all there")
            assert sorted(numbered("alarms/x", reader.got)) == list(range(sent))
            assert "is failed" not in net["a"].log.read_text()
            assert "is lost" not in net["a"].log.read_text()

    asyncio.run(story())


@pytest.mark.parametrize("has_secret", [False, True], ids=["without a secret", "with a secret"])
def test_garbage_forgeries_and_repetitions_are_counted_and_change_nothing(tmp_path: Path, has_secret: bool) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-the-brokers-of-this-overlay")
    secret.chmod(0o600)

    def alter(datagram: bytes) -> list[bytes]:
        another = datagram[:13] + bytes([datagram[13] ^ 0x40])  # the session, and a number that has not come
        return [another + b"\2garbage", datagram, datagram, datagram[:14], os.urandom(60), b""]

    async def story() -> None:
        net = Pair(tmp_path, tables=WITH_SECRET.format(directory=tmp_path) if has_secret else "")
        async with running(net), crossing(net) as reader:
            await eventually_async(net.is_open, "open")
            net.relay.alter = alter
            for number in range(100):
                net.relay.inject(os.urandom(100))
                await reader.send("alarms/x", b"%d" % number)
                await asyncio.sleep(0.005)
            await eventually_async(lambda: numbered("alarms/x", reader.got) == list(range(100)), "each there, once")
            refused = net.refused("b")
            assert refused["replayed"] >= 1
            assert refused["forged" if has_secret else "malformed"] >= 1
            assert net.is_open()
            for name in "ab":
                assert "is lost" not in net[name].log.read_text()

    asyncio.run(story())


def test_datagrams_beside_an_encrypted_connection_can_be_read_by_nobody_else(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    for name in "ab":
        authority.broker(name)

    async def story(is_encrypted: bool) -> bool:
        directory = tmp_path / str(is_encrypted)
        directory.mkdir()
        net = Pair(directory)
        common = net.file.read_text()
        for name, member in net.members.items():
            own = directory / f"{name}.toml"
            files = f'certificate = "{tmp_path}/{name}.pem"\nkey = "{tmp_path}/{name}.key"\n'
            tls = f'\n[security]\n{files}client_ca = "{tmp_path}/ours.pem"\noverlay_tls = true\n'
            own.write_text(common + (tls if is_encrypted else ""))
            member.use(own)
        async with running(net), crossing(net) as reader:
            await eventually_async(net.is_open, "open")
            await reader.send("alarms/x", MARK)
            await eventually_async(lambda: ("alarms/x", MARK) in reader.got, "there")
            return any(MARK in datagram for datagram in net.relay.seen)

    assert [asyncio.run(story(is_encrypted)) for is_encrypted in (False, True)] == [True, False]


@pytest.mark.parametrize(
    ("link", "of_b"),
    [(LINK + '\ntransport = "stream"', ""), (LINK, "datagrams = false\n")],
    ids=["the link is a stream", "one broker has none"],
)
def test_where_the_file_says_so_there_are_no_datagrams(tmp_path: Path, link: str, of_b: str) -> None:
    async def story() -> None:
        async with running(Pair(tmp_path, link, of_b)) as net, crossing(net) as reader:
            await reader.send("alarms/x", b"1")
            await eventually_async(lambda: numbered("alarms/x", reader.got) == [1], "there")
            assert (net.beside("a"), net.beside("b")) == (None, None)
            assert net.relay.seen == []

    asyncio.run(story())
