"""Clients that another broker passes on: who may speak for them, and what it says of them."""

import asyncio
import contextlib
import secrets
import ssl
import time
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.broker import OverlayBroker
from overlane.core.config import BrokerConfig
from overlane.core.events import Event, Lane
from overlane.core.qos import QosTable
from overlane.errors import ProtocolViolation
from overlane.local_ports import free_ports
from overlane.membership.endpoint import Endpoint
from overlane.membership.neighbours import NeighbourChanges, NeighbourConfig
from overlane.network.schema import Security
from overlane.node.clients.introduction import INTRODUCTION_BYTES_MAX, Introduction, read_introduction
from overlane.node.clients.pass_through import Upstream
from overlane.node.links.greeting import CLIENT, Credentials, Greeting
from overlane.node.links.overlay import Overlay
from overlane.node.security.tls import client_context, server_context
from overlane.pubsub.contract.consumer import Peer
from overlane.secret import Secret
from overlane.testbed.certificates import Authority
from waiting import eventually_async

SECRET = Secret(b"the secret of this overlay")
ALICE = Introduction("192.0.2.7:4000", is_loopback=False, is_secure=True, user="alice", listener="mqtt_tls")


def test_an_introduction_says_who_the_client_is() -> None:
    data = ALICE.encoded() + b"CONNECT"
    assert read_introduction(data) == (ALICE, len(data) - 7)
    assert ALICE.peer("west-2") == Peer("192.0.2.7:4000", False, True, "alice", "mqtt_tls", "west-2")


@pytest.mark.parametrize("end", range(len(ALICE.encoded())))
def test_half_an_introduction_is_waited_for(end: int) -> None:
    assert read_introduction(ALICE.encoded()[:end]) is None


@pytest.mark.parametrize("data", [b"\x00\x00", b"\x00\x01\xc1", (INTRODUCTION_BYTES_MAX + 1).to_bytes(2)])
def test_what_is_no_introduction_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        read_introduction(data)


@given(st.binary(max_size=100))
def test_any_bytes_are_an_introduction_or_waited_for_or_refused(data: bytes) -> None:
    with contextlib.suppress(ProtocolViolation):
        read_introduction(data)


class Turns:
    def handle(self, event: Event) -> None: ...
    def tell_core(self, event: Event) -> None: ...
    def received(self, peer: str, data: bytes, lane: Lane) -> None: ...
    def links_have_room(self) -> None: ...


def overlay(name: str, secret: Secret | None, instance: int) -> Overlay:
    core = OverlayBroker(BrokerConfig(name, QosTable({})), 1)
    return Overlay(core, time.monotonic_ns, Turns(), secret=secret, instance=instance)


async def passes(dialler_secret: Secret | None, instance: int = 1, name: str = "west-1") -> list[str]:
    """Whose clients west-2 is passed, where west-1 of instance 1 is linked, and somebody dials for a client."""
    one, other = overlay("west-1", SECRET, 1), overlay("west-2", SECRET, 2)
    passed: list[str] = []

    def take(via: str, transport: asyncio.Transport, data: bytes) -> bool:  # noqa: ARG001
        passed.append(via)
        return False

    other.on_passed_in = take
    address = Endpoint("127.0.0.1", free_ports(1)[0])
    await other.listen(address)
    one.reconfigure(NeighbourChanges((), {"west-2": NeighbourConfig((address,))}))
    other.reconfigure(NeighbourChanges((), {"west-1": NeighbourConfig(), "east-1": NeighbourConfig(is_expected=False)}))
    try:
        await eventually_async(lambda: "west-1" in other.links and "west-2" in one.links, "they are linked")
        upstream = Upstream(overlay(name, dialler_secret, instance), "west-2")
        await other.dial_for_client("west-2", address, upstream)
        await asyncio.wait([upstream.greeted], timeout=20)
        await eventually_async(lambda: upstream._transport is None, "it was not taken")
    finally:
        await one.end()
        await other.end()
    return passed


def test_the_broker_that_is_linked_may_pass_clients_on() -> None:
    assert asyncio.run(passes(SECRET)) == ["west-1"]


def test_who_does_not_know_the_secret_may_not() -> None:
    assert asyncio.run(passes(Secret(b"another secret"))) == []
    assert asyncio.run(passes(None)) == []


def test_another_broker_of_the_same_name_may_not() -> None:
    assert asyncio.run(passes(SECRET, instance=7)) == []


def test_a_neighbour_that_is_not_linked_may_not() -> None:
    assert asyncio.run(passes(SECRET, name="east-1")) == []


@pytest.mark.parametrize(
    ("secret", "host", "may"),
    [(SECRET, "192.0.2.1", True), (None, "192.0.2.1", False), (None, "127.0.0.1", True), (None, "::1", True)],
)
def test_a_mere_name_is_believed_on_the_same_machine_only(secret: Secret | None, host: str, may: bool) -> None:
    class Transport(asyncio.Transport):
        def get_extra_info(self, name: str, default: object = None) -> object:
            return (host, 4000) if name == "peername" else default

    assert overlay("west-1", secret, 1).may_pass_clients(Transport()) is may


def test_a_greeting_for_a_client_is_proven_like_any_other() -> None:
    """The proof of a link is none for a client: see `test_greeting`; here, that both ends prove it."""
    dialler = Greeting(Credentials("west-1", SECRET, None, False), secrets.token_bytes(16), "west-2", purpose=CLIENT)
    impostor = Greeting(Credentials("west-2", None, None, True), secrets.token_bytes(16))
    answer, _ = impostor.receive(dialler.opening())
    with pytest.raises(ProtocolViolation, match="does not know the secret"):
        dialler.receive(answer)


class Echo(asyncio.BufferedProtocol):
    """Takes a transport over, as connections that come in do, and sends back what it reads."""

    def __init__(self, transport: asyncio.Transport, data: bytes) -> None:
        self._transport = transport
        self._buffer = bytearray(4096)
        transport.set_protocol(self)
        transport.set_write_buffer_limits(65536, 4096)
        if data:
            transport.write(data)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(bytes(self._buffer[:nbytes]))


class Collected:
    """In place of a relay."""

    def __init__(self) -> None:
        self.data = b""
        self.is_over = False

    def answered(self, data: bytes) -> None:
        self.data += data

    def end(self) -> None:
        self.is_over = True

    def upstream_full(self) -> None: ...
    def upstream_drained(self) -> None: ...


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_bytes_pass_both_ways_behind_the_greeting(tmp_path: Path, is_encrypted: bool) -> None:
    """In the event loop that brokers have, whose transports of TLS are its own."""
    authority = Authority(tmp_path)

    def contexts(name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        identity, ca = authority.broker(name), str(authority.ca)
        certificate, key = str(identity.certificate), str(identity.key)
        security = Security(certificate=certificate, key=key, client_ca=ca)
        return server_context(security), client_context(ca=ca, certificate=certificate, key=key)

    def secured(name: str, instance: int) -> Overlay:
        core = OverlayBroker(BrokerConfig(name, QosTable({})), 1)
        if not is_encrypted:
            return Overlay(core, time.monotonic_ns, Turns(), instance=instance, secret=SECRET)
        server_tls, client_tls = contexts(name)
        return Overlay(
            core, time.monotonic_ns, Turns(), instance=instance, server_tls=server_tls, client_tls=client_tls
        )

    async def story() -> bytes:
        one, other = secured("west-1", 1), secured("west-2", 2)
        echoes: list[Echo] = []

        def take(_via: str, transport: asyncio.Transport, data: bytes) -> bool:
            echoes.append(Echo(transport, data))
            return True

        other.on_passed_in = take
        address = Endpoint("127.0.0.1", free_ports(1)[0])
        await other.listen(address)
        one.reconfigure(NeighbourChanges((), {"west-2": NeighbourConfig((address,))}))
        other.reconfigure(NeighbourChanges((), {"west-1": NeighbourConfig()}))
        collected = Collected()
        try:
            await eventually_async(lambda: "west-1" in other.links and "west-2" in one.links, "they are linked")
            upstream = Upstream(one, "west-2")
            await one.dial_for_client("west-2", one.addresses("west-2")[0], upstream)
            async with asyncio.timeout(20):
                await upstream.greeted
            upstream.relay = collected  # type: ignore[assignment]
            upstream.write(b"first")
            await eventually_async(lambda: collected.data == b"first", "it comes back")
            upstream.write(bytes(100_000))
            await eventually_async(lambda: len(collected.data) == 100_005, "all of it comes back")
            echoes[0]._transport.close()
            await eventually_async(lambda: collected.is_over and upstream.is_lost, "the end is noticed")
        finally:
            await one.end()
            await other.end()
        return collected.data[:5]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(story()) == b"first"
