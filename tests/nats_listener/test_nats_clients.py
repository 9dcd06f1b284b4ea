"""A NATS client that others have written (nats-py), at real brokers, with MQTT clients beside it."""

import asyncio
import base64
import binascii
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiomqtt
import nats
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.aio.client import Client as NatsPy
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from brokers import Overlane, free_port
from overlane.node.security.password_hashes import Cost
from overlane.node.security.users import add_nkey, set_password
from overlane.secret import Secret
from overlane.testbed.certificates import Authority
from overlays import RealOverlay
from waiting import eventually, eventually_async

pytestmark = pytest.mark.slow

DENIED = r"(?i)authorization|unexpected eof"
CHEAP = Cost(memory_kib=8, times=1)


class Row:
    """Two brokers with a link."""

    def __init__(self, directory: Path) -> None:
        self.net = RealOverlay(directory, {"a-b": 'latency = "1ms"'})
        self.ports = {name: free_port() for name in self.net.members}
        text = self.net.file.read_text()
        for name, port in self.ports.items():
            text = text.replace(f"[brokers.{name}]\n", f'[brokers.{name}]\nnats = "127.0.0.1:{port}"\n')
        self.net.file.write_text(text)

    async def nats(self, broker: str, **options: Any) -> NatsPy:
        return await connect(self.ports[broker], **options)

    def mqtt(self, name: str, **options: Any) -> aiomqtt.Client:
        port = int(self.net[name].mqtt.rpartition(":")[2])
        return aiomqtt.Client("127.0.0.1", port, protocol=aiomqtt.ProtocolVersion.V5, **options)


async def connect(port: int, **options: Any) -> NatsPy:
    options = {"allow_reconnect": False, "connect_timeout": 20, **options}
    return await nats.connect(f"nats://127.0.0.1:{port}", **options)


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Row]:
    made = Row(tmp_path_factory.mktemp("row"))
    try:
        made.net.start()
        yield made
    finally:
        made.net.end()


def collecting(into: list[Msg]) -> Callable[[Msg], Awaitable[None]]:
    async def take(message: Msg) -> None:
        into.append(message)

    return take


async def known(publish: Callable[[], Awaitable[object]], holds: Callable[[], bool]) -> None:
    """Publish until the subscription is known where that is done."""

    async def repeat() -> None:
        while not holds():
            await publish()
            await asyncio.sleep(0.05)

    await asyncio.wait_for(repeat(), 30)


def test_messages_pass_between_nats_and_mqtt_clients_of_two_brokers_in_order(row: Row) -> None:
    async def story() -> None:
        there, here = await row.nats("a"), await row.nats("b")
        got: list[Msg] = []
        await there.subscribe("both.>", cb=collecting(got))
        await there.flush()
        async with row.mqtt("b") as publisher, row.mqtt("a") as reader:
            await reader.subscribe("both/#")
            heard: list[aiomqtt.Message] = []

            async def read() -> None:
                async for message in reader.messages:
                    heard.append(message)

            reading = asyncio.create_task(read())
            await known(lambda: here.publish("both.ready", b""), lambda: bool(got) and bool(heard))
            for number in range(200):
                await here.publish("both.nats.x", bytes((number, 0, 13, 10, 255)), headers={"N": str(number)})
            await here.flush()
            for number in range(200):
                await publisher.publish("both/mqtt/a.b", bytes((number, 0, 13, 10)), qos=1)
            await eventually_async(
                lambda: (
                    sum(one.subject == "both.nats.x" for one in got) == 200
                    and sum(one.subject == "both.mqtt.a%2Eb" for one in got) == 200
                    and sum(str(one.topic) == "both/nats/x" for one in heard) == 200
                    and sum(str(one.topic) == "both/mqtt/a.b" for one in heard) == 200
                ),
                "all messages",
            )
            reading.cancel()
        first = [one for one in got if one.subject == "both.nats.x"]
        assert [(one.data[0], one.headers) for one in first] == [(n, {"N": str(n)}) for n in range(200)]
        assert [one.data for one in got if one.subject == "both.mqtt.a%2Eb"] == [
            bytes((n, 0, 13, 10)) for n in range(200)
        ]
        assert [one.payload for one in heard if str(one.topic) == "both/nats/x"] == [one.data for one in first]
        pairs = [getattr(one.properties, "UserProperty", []) for one in heard if str(one.topic) == "both/nats/x"]
        assert pairs == [[("N", str(n))] for n in range(200)]
        await there.close()
        await here.close()

    asyncio.run(story())


def test_a_request_is_answered_at_another_broker_and_one_for_nobody_at_once(row: Row) -> None:
    async def story() -> None:
        asker, service = await row.nats("a"), await row.nats("b")
        seen: list[Msg] = []

        async def answer(message: Msg) -> None:
            seen.append(message)
            await message.respond(b"re:" + message.data)

        await service.subscribe("svc.echo", cb=answer)
        await service.flush()
        await known(lambda: asker.publish("svc.echo", b""), lambda: bool(seen))
        for number in range(20):
            told = await asker.request("svc.echo", b"%d" % number, timeout=20)
            assert told.data == b"re:%d" % number
        crew: list[Msg] = []

        async def answer_for_crew(message: Msg) -> None:
            crew.append(message)
            await message.respond(b"crew")

        await service.subscribe("svc.crew", queue="crew", cb=answer_for_crew)
        await service.flush()
        await known(lambda: asker.publish("svc.crew", b""), lambda: bool(crew))
        assert (await asker.request("svc.crew", b"", timeout=20)).data == b"crew"
        with pytest.raises(NoRespondersError):
            await asker.request("svc.nobody", b"", timeout=20)
        with pytest.raises(NoRespondersError):
            await asker.request("$JS.API.INFO", b"", timeout=20)
        await asker.close()
        await service.close()

    asyncio.run(story())


def test_a_queue_group_spans_brokers_and_protocols(row: Row) -> None:
    async def story() -> None:
        one, two, publisher = await row.nats("a"), await row.nats("b"), await row.nats("a")
        got: dict[str, list[Msg]] = {"one": [], "two": []}
        await one.subscribe("jobs.*", queue="crew", cb=collecting(got["one"]))
        await two.subscribe("jobs.*", queue="crew", cb=collecting(got["two"]))
        await one.flush()
        await two.flush()
        sent = 0

        async def publish() -> None:
            nonlocal sent
            sent += 1
            await publisher.publish("jobs.x", b"%d" % sent)

        await known(publish, lambda: bool(got["one"]) and bool(got["two"]))
        await publisher.flush()
        await eventually_async(lambda: len(got["one"]) + len(got["two"]) == sent, "each message once")
        for client in (one, two, publisher):
            await client.close()

    asyncio.run(story())


def test_large_messages_and_many_small_ones_arrive_whole(row: Row) -> None:
    async def story() -> None:
        client = await row.nats("a")
        got: list[Msg] = []
        await client.subscribe("sizes.*", cb=collecting(got), pending_bytes_limit=-1)
        sizes = [0, 1, 100, 4_096, 65_536, 1_000_000, client.max_payload]
        for size in sizes:
            await client.publish(f"sizes.{size}", bytes(size))
        for number in range(3_000):
            await client.publish("sizes.small", b"%d" % number)
        await client.flush(20)
        await eventually_async(lambda: len(got) == len(sizes) + 3_000, "all messages")
        assert [len(one.data) for one in got[: len(sizes)]] == sizes
        assert [int(one.data) for one in got[len(sizes) :]] == list(range(3_000))
        await client.close()

    asyncio.run(story())


def test_operators_see_nats_clients_with_their_protocol(row: Row) -> None:
    async def story() -> None:
        client = await row.nats("a", name="meter")
        page = row.net["a"].ask("/clients?filter=meter")
        assert isinstance(page, dict)
        [seen] = page["items"]
        assert (seen["connection"]["protocol"], seen["connection"]["listener"]) == ("NATS", "nats")
        await client.close()

    asyncio.run(story())


def test_a_client_that_does_not_read_is_closed_and_its_publisher_goes_on(row: Row) -> None:
    with socket.create_connection(("127.0.0.1", row.ports["a"])) as slow:
        slow.sendall(b"CONNECT {}\r\nSUB flood 1\r\nPING\r\n")
        told = b""
        while b"PONG" not in told:
            told += slow.recv(4_096)

        async def flood() -> None:
            client = await row.nats("a")
            payload = bytes(500_000)

            def refused() -> int:
                told = row.net["a"].ask("/status")
                assert isinstance(told, dict)
                return int(told["refused"].get("slow client", 0))

            async def publish() -> None:
                await client.publish("flood", payload)
                await client.flush(30)

            await asyncio.wait_for(_until(refused, publish), 60)
            assert client.is_connected
            await client.close()

        asyncio.run(flood())


async def _until(holds: Callable[[], int], act: Callable[[], Awaitable[None]]) -> None:
    while not holds():
        await act()


def test_what_was_confirmed_to_a_verbose_client_outlives_kill_9(tmp_path: Path) -> None:
    port = free_port()
    broker = Overlane(tmp_path, endpoints=f'nats = "127.0.0.1:{port}"\n')

    async def subscribe() -> None:
        properties = aiomqtt.Client("127.0.0.1", broker.port, identifier="keeper", clean_session=False)
        async with properties as keeper:
            await keeper.subscribe("keep/#", qos=1)

    def publish() -> int:
        """How many were confirmed when the broker was killed, in the middle of it."""
        confirmed = 0
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(b'CONNECT {"verbose": true}\r\n')
            stream = raw.makefile("rb")
            assert stream.readline().startswith(b"INFO")
            assert stream.readline() == b"+OK\r\n"
            for number in range(300):
                raw.sendall(b"PUB keep.x %d\r\n%d\r\n" % (len(str(number)), number))
                if number < 200:
                    assert stream.readline() == b"+OK\r\n"
                    confirmed += 1
            broker.kill()
        return confirmed

    async def read(confirmed: int) -> list[int]:
        found: list[int] = []
        keeper = aiomqtt.Client("127.0.0.1", broker.port, identifier="keeper", clean_session=False)
        async with keeper:
            async for message in keeper.messages:
                assert isinstance(message.payload, bytes)
                found.append(int(message.payload))
                if found[-1] >= confirmed - 1:
                    return found
        return found

    broker.start()
    try:
        asyncio.run(subscribe())
        confirmed = publish()
        broker.start()
        found = asyncio.run(asyncio.wait_for(read(confirmed), 60))
    finally:
        broker.kill()
    assert found[:confirmed] == list(range(confirmed))


class Signer:
    """A private key, and what nats-py asks of it."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        raw = bytes((20 << 3,)) + self._key.public_key().public_bytes_raw()
        crc = binascii.crc_hqx(raw, 0).to_bytes(2, "little")
        self.public = base64.b32encode(raw + crc).decode()

    def sign(self, nonce: str) -> bytes:
        return base64.b64encode(self._key.sign(nonce.encode()))

    async def connect(self, port: int, **options: Any) -> NatsPy:
        """nats-py signs by a library of its own, which is not needed for that."""
        client = NatsPy()
        client._auth_configured = True
        client._public_nkey = self.public
        options = {"allow_reconnect": False, "connect_timeout": 20, "signature_cb": self.sign, **options}
        await client.connect(f"nats://127.0.0.1:{port}", **options)
        return client


def test_tls_and_every_kind_of_login(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.server()
    users, plain, secure, signer = tmp_path / "users", free_port(), free_port(), Signer()
    set_password(users, "alice", Secret(b"sesame"), CHEAP)
    add_nkey(users, "bob", signer.public)
    tables = (
        f'[security]\ncertificate = "{server.certificate}"\nkey = "{server.key}"\n'
        f'users = "{users}"\nanonymous = false\n'
        '[[access]]\nuser = "alice"\npublish = ["open/#"]\nsubscribe = ["open/#"]\n'
        '[[access]]\nuser = "bob"\npublish = ["#"]\nsubscribe = ["#"]\n'
    )
    broker = Overlane(tmp_path, tables, f'nats = "127.0.0.1:{plain}"\nnats_tls = "127.0.0.1:{secure}"\n')
    trust = ssl.create_default_context(cafile=str(authority.ca))

    async def story() -> None:
        alice = await connect(plain, user="alice", password="sesame")
        token = await connect(plain, token="alice:sesame")
        by_tls = await connect(secure, user="alice", password="sesame", tls=trust, tls_hostname="localhost")
        bob = await signer.connect(secure, tls=trust, tls_hostname="localhost")
        got: list[Msg] = []
        for client in (alice, token, by_tls):
            await client.subscribe("open.x", cb=collecting(got))
            await client.flush(20)
        await bob.publish("open.x", b"hi")
        await bob.flush(20)
        await eventually_async(lambda: len(got) == 3, "everybody has it")
        for client in (alice, token, by_tls, bob):
            await client.close()
        wrong: list[dict[str, object]] = [{"user": "alice", "password": "no"}, {"token": "alice:no"}, {}]
        for options in wrong:
            with pytest.raises(Exception, match=DENIED):
                await connect(plain, **options, max_reconnect_attempts=0)
        with pytest.raises(Exception, match=DENIED):
            await Signer().connect(plain, max_reconnect_attempts=0)

    broker.start()
    try:
        asyncio.run(story())
    finally:
        broker.kill()


def listens(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_client_that_speaks_ahead_of_tls_is_closed_and_what_it_said_is_not_heeded(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, secure = authority.server(), free_port()
    tables = f'[security]\ncertificate = "{server.certificate}"\nkey = "{server.key}"\n'
    broker = Overlane(tmp_path, tables, f'nats_tls = "127.0.0.1:{secure}"\n')
    trust = ssl.create_default_context(cafile=str(authority.ca))
    broker.start()
    try:
        eventually(partial(listens, secure), "TLS is listened for")
        with socket.create_connection(("127.0.0.1", secure), 20) as impatient:
            impatient.sendall(b"CONNECT {}\r\nSUB > 1\r\n")
            with contextlib.suppress(ConnectionError):
                while impatient.recv(4096):
                    pass

        async def story() -> None:
            for _ in range(20):
                client = await connect(secure, tls=trust, tls_hostname="localhost")
                await client.flush(20)
                await client.close()

        asyncio.run(story())
    finally:
        broker.kill()
