"""Replication connections over real sockets: who is believed, what arrives, and what neighbours are asked."""

import asyncio
import ssl
from pathlib import Path

import pytest

from overlane.network import Security
from overlane.node.recovery.replication.replication import ReplicaIdentity, Replication
from overlane.node.security.tls import link_contexts
from overlane.recovery.events import Event, MirrorLost, Received
from overlane.recovery.hosts.questions import NOT_LINKED
from overlane.recovery.replication.frames import Acknowledge, Append, Heartbeat
from overlane.secret import Secret
from overlane.testbed.certificates import Authority
from waiting import eventually_async

SECRET = Secret(b"a secret of sixteen bytes or more")
LIMIT = 1 << 20


def replication(host: str, secret: Secret | None = SECRET, broker: str = "seattle") -> tuple[Replication, list[Event]]:
    made = Replication(ReplicaIdentity(broker, host, secret, is_open=False), LIMIT)
    events: list[Event] = []
    made.on_event = events.append
    return made, events


def test_frames_arrive_in_both_directions_and_the_end_of_a_mirror_is_told() -> None:
    async def go() -> None:
        (primary, at_primary), (mirror, at_mirror) = replication("one"), replication("other")
        address = await primary.listen("127.0.0.1")
        assert await mirror.dial("seattle@one", address) is not None
        await eventually_async(lambda: primary.is_linked("other"), "the primary knows the mirror")
        large = Append("seattle", 1, 1, (("table", b"key", b"x" * 300_000),), 5)
        primary.send("other", large)
        assert await primary.send_slowly("other", Heartbeat("seattle", 1, 1, 6))
        mirror.send("one", Acknowledge("seattle", 1, 1, 7, 6))
        await eventually_async(lambda: len(at_mirror) == 2 and len(at_primary) == 1, "all has arrived")
        assert at_mirror == [Received("one", large), Received("one", Heartbeat("seattle", 1, 1, 6))]
        assert at_primary == [Received("other", Acknowledge("seattle", 1, 1, 7, 6))]
        mirror.close()
        await eventually_async(lambda: at_primary[-1] == MirrorLost("other"), "it is told")
        assert not await primary.send_slowly("other", Heartbeat("seattle", 1, 1, 6))
        primary.close()

    asyncio.run(go())


def test_a_host_without_the_secret_or_of_another_name_is_not_believed() -> None:
    async def go() -> None:
        primary, events = replication("one")
        address = await primary.listen("127.0.0.1")
        stranger, _ = replication("other", Secret(b"another secret of sixteen bytes"))
        assert await stranger.dial("seattle@one", address) is None
        misled, _ = replication("other")
        assert await misled.dial("seattle@elsewhere", address) is None
        assert not primary.is_linked("other")
        assert events == []
        primary.close()

    asyncio.run(go())


def test_with_certificates_who_a_host_is_and_which_broker_it_may_have_are_in_its_certificate(tmp_path: Path) -> None:
    """`one` and `other` may have copies of each other's broker; `third` is of the same authority, and may not."""
    authority = Authority(tmp_path)
    named = {"one": ("other", "seattle"), "other": ("one", "seattle"), "third": ()}

    def certified(host: str) -> tuple[Replication, list[Event]]:
        shown = authority.broker(host, named[host])
        security = Security(
            certificate=str(shown.certificate), key=str(shown.key), client_ca=str(authority.ca), overlay_tls=True
        )
        made = Replication(ReplicaIdentity("seattle", host, None, is_open=False, tls=link_contexts(security)), LIMIT)
        events: list[Event] = []
        made.on_event = events.append
        return made, events

    async def go() -> None:
        (primary, at_primary), (mirror, at_mirror), (third, _) = map(certified, named)
        address = await primary.listen("127.0.0.1")
        assert await mirror.dial("seattle@one", address) is not None
        await eventually_async(lambda: primary.is_linked("other"), "the primary knows the mirror")
        large = Append("seattle", 1, 1, (("table", b"key", b"x" * 3_000_000),), 5)
        primary.send("other", large)
        mirror.send("one", Acknowledge("seattle", 1, 1, 7, 6))
        await eventually_async(lambda: bool(at_mirror and at_primary), "all has arrived")
        assert (at_mirror, at_primary) == (
            [Received("one", large)],
            [Received("other", Acknowledge("seattle", 1, 1, 7, 6))],
        )
        assert await third.dial("seattle@one", address) is None
        # Nor is a certificate believed that the dialled end should not have.
        elsewhere = await third.listen("127.0.0.1")
        assert await mirror.dial("seattle@third", elsewhere) is None
        with pytest.raises(ssl.SSLCertVerificationError):
            await mirror.dial("seattle@one", elsewhere)
        unencrypted, _ = replication("other", None)
        assert await unencrypted.dial("seattle@one", address) is None
        assert not primary.is_linked("third")
        for one in (primary, mirror, third):
            one.close()

    asyncio.run(go())


def test_garbage_closes_the_connection_and_frames_of_another_broker_are_not_taken() -> None:
    async def go() -> None:
        primary, events = replication("one")
        address = await primary.listen("127.0.0.1")
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await asyncio.wait_for(reader.read(), 20) == b""
        other, _ = replication("other", broker="denver")
        link = await other.dial("seattle@one", address)
        assert link is not None
        link.send(Heartbeat("seattle", 9, 9, 9))
        await eventually_async(lambda: not link.is_open, "it is closed")
        assert events == []
        primary.close()

    asyncio.run(go())


def test_a_neighbour_tells_how_long_ago_it_has_heard_a_broker() -> None:
    async def go() -> None:
        neighbour = Replication(ReplicaIdentity("denver", "denver", SECRET, is_open=False), LIMIT)

        async def heard_ago_ns(broker: str) -> int:
            return 5_000 if broker == "seattle" else NOT_LINKED

        neighbour.heard_ago_ns = heard_ago_ns
        address = await neighbour.listen("127.0.0.1")
        mirror, _ = replication("other")
        assert await mirror.ask("denver@denver", address, "seattle", 60) == 5_000
        assert await mirror.ask("denver@denver", address, "boston", 60) == NOT_LINKED
        # The broker itself answers at once: it lives.
        assert await mirror.ask("denver@denver", address, "denver", 60) == 0
        neighbour.close()

    asyncio.run(go())
