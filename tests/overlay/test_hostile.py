"""Neighbours that lie, babble or freeze harm nobody but their own link."""

import asyncio
import os
import random
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from fakeneighbour import dial, greet

from overlane.client import connect
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import Advert, InterestUpdate, LinkClaim, encode
from overlane.core.wire.frame_codec import NAME_BYTES_MAX, Header
from overlane.node.links.greeting import Credentials, Greeting
from overlays import RealOverlay, overlay
from waiting import eventually_async

pytestmark = pytest.mark.slow

SQUARE = {
    "a-b": 'latency = "1ms"',
    "b-d": 'latency = "1ms"',
    "a-c": 'latency = "2ms"\nemulate = true',
    "c-d": 'latency = "2ms"\nemulate = true',
    "a-liar": 'latency = "1ms"',
}


@pytest.fixture(scope="module")
def square(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOverlay]:
    """Four brokers; the fifth of the file never runs, so that a test can play it."""
    net = RealOverlay(tmp_path_factory.mktemp("square"), SQUARE)
    del net.members["liar"]
    net.file.write_text(net.file.read_text() + '\n[[events]]\nat = "1h"\njoin = "liar"\n')
    try:
        net.start()
        yield net
    finally:
        net.end()


def is_closed_by_the_other_side(connection: socket.socket) -> bool:
    connection.settimeout(10)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


async def messages_cross(net: RealOverlay, topic: str) -> None:
    async with connect(net["d"].mqtt) as there, connect(net["a"].mqtt) as here:
        got: list[bytes] = []
        messages = there.subscribe(topic)

        async def read() -> None:
            async for message in messages:
                got.append(bytes(message.body))

        reading = asyncio.create_task(read())
        while not got:
            await here.publish(topic, b"x", qos=1)
            await asyncio.sleep(0.05)
        reading.cancel()


@pytest.mark.parametrize("seed", range(5))
def test_noise_at_the_overlays_door_is_shown_out(square: RealOverlay, seed: int) -> None:
    print("seed", seed)
    noise = random.Random(seed).randbytes(4096)
    with closing(dial(square["a"])) as connection:
        connection.sendall(noise)
        assert is_closed_by_the_other_side(connection)
    asyncio.run(messages_cross(square, f"noise/{seed}"))


def test_a_stranger_is_no_neighbour(square: RealOverlay) -> None:
    with closing(greet(square["a"], "stranger", "a")) as connection:
        assert is_closed_by_the_other_side(connection)


def test_who_stays_silent_at_the_door_is_shown_out(square: RealOverlay) -> None:
    with closing(dial(square["a"])) as connection:
        assert is_closed_by_the_other_side(connection)


def lies() -> dict[str, list[bytes]]:
    hello = frame_codec.hello("liar", 1)

    def control(number: int, message: object) -> bytes:
        return frame_codec.control(number, encode(message))  # type: ignore[arg-type]

    forged = Header(0, 1, frame_codec.broker_id("a"), 1, 99, 1, 0, 0, 1, 0)
    return {
        "another name in the greeting": [frame_codec.hello("b", 1)],
        "no greeting": [frame_codec.ping(1)],
        "a frame of unknown type": [hello, struct.pack("!IB", 1, 250)],
        "a frame beyond all bounds": [hello, struct.pack("!IB", 1 << 30, 6)],
        "control out of order": [hello, control(7, InterestUpdate("liar", 1, 1, 0, ["#"], []))],
        "words that mean nothing": [hello, frame_codec.control(0, b"\xc1\xc1")],
        "a parcel in our own name": [hello, frame_codec.parcel(forged, b"garbage")],
        "an absurd link": [hello, control(0, Advert("liar", 1, 1, [LinkClaim("d", 0, 0, 0, 0, 0)], {}, 0))],
        "a map in the name of another": [hello, control(0, Advert("b", 1 << 31, 1 << 30, [], {}, 0))],
        "needs in the name of a neighbour": [hello, control(0, InterestUpdate("b", 1 << 31, 1 << 30, -1, [], []))],
    }


def way_to_d(net: RealOverlay) -> list[list[str]]:
    answer = net["a"].ask("/routes")
    assert isinstance(answer, dict)
    return next((route["paths"]["d"] for route in answer["items"] if "d" in route["destinations"]), [])


@pytest.mark.parametrize("kind", lies())
def test_a_lying_neighbour_stops_nothing_that_it_is_not_asked_for(square: RealOverlay, kind: str) -> None:
    with closing(greet(square["a"], "liar", "a")) as connection:
        for frame in lies()[kind]:
            connection.sendall(frame)
        asyncio.run(messages_cross(square, f"lies/{kind}"))
    asyncio.run(messages_cross(square, f"after/{kind}"))
    square.wait_until(lambda: way_to_d(square) == [["a", "b", "d"]], "on the best way")
    assert all(member.is_running for member in square.members.values())


GENUINE = [
    frame_codec.ping(1),
    frame_codec.hop_ack(1, 5, 3),
    frame_codec.control(0, encode(InterestUpdate("liar", 1, 1, 0, ["t", "v/#"], []))),
    frame_codec.control(1, encode(Advert("liar", 1, 1, [LinkClaim("a", 1_000, 100, 0, 0, 0)], {"60000": 1}, 0))),
    frame_codec.parcel(
        Header(3, 1, frame_codec.broker_id("d"), 1, 1 << 30, 1, 0, 0, 1, 0), b"forged, and from the future"
    ),
    frame_codec.detour(
        (frame_codec.broker_id("a"), frame_codec.broker_id("b")),
        0,
        Header(0, 1, frame_codec.broker_id("d"), 1, 7, 1, 0, 0, 1, 9),
        b"",
    ),
]


@pytest.mark.parametrize("seed", range(3))
def test_frames_of_a_neighbour_damaged_in_any_way_harm_nothing_but_its_link(square: RealOverlay, seed: int) -> None:
    print("seed", seed)
    luck = random.Random(seed)
    for _ in range(30):
        data = bytearray(frame_codec.hello("liar", 1) + b"".join(luck.choices(GENUINE, k=luck.randrange(1, 6))))
        for _ in range(luck.randrange(4)):
            data[luck.randrange(len(data))] = luck.randrange(256)
        with closing(greet(square["a"], "liar", "a")) as connection, suppress(ConnectionError):
            connection.sendall(bytes(data))
    asyncio.run(messages_cross(square, f"damaged/{seed}"))
    assert all(member.is_running for member in square.members.values())
    assert "Traceback" not in square.logs()


def test_a_neighbour_that_freezes_is_gone_around_and_comes_back(square: RealOverlay) -> None:
    async def story() -> None:
        async with connect(square["d"].mqtt) as there, connect(square["a"].mqtt) as here:
            got: list[bytes] = []
            messages = there.subscribe("frozen/#")

            async def read() -> None:
                async for message in messages:
                    got.append(bytes(message.body))

            reading = asyncio.create_task(read())
            while not got:
                await here.publish("frozen/x", b"probe", qos=1)
                await asyncio.sleep(0.05)
            victim = square["b"].process_id
            os.kill(victim, signal.SIGSTOP)
            try:
                for number in range(50):
                    await here.publish("frozen/x", b"%d" % number, qos=1)
                    await asyncio.sleep(0.01)
                await eventually_async(
                    lambda: {b"%d" % number for number in range(50)} <= set(got), "gone around", 30.0
                )
            finally:
                os.kill(victim, signal.SIGCONT)
            reading.cancel()

    asyncio.run(story())

    def is_linked() -> bool:
        answer = square["a"].ask("/links")
        assert isinstance(answer, dict)
        return any(one["peer"] == "b" and one["state"] == "up" for one in answer["items"])

    square.wait_until(is_linked, "linked with the one that froze")


def test_a_shared_secret_keeps_out_who_does_not_know_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("secret")
    (directory / "secret").write_text("sixteen-bytes-or-more-of-secret\n")
    tables = f'[security]\noverlay_secret = "{directory}/secret"\n'
    with overlay(directory, {"a-b": 'latency = "1ms"'}, tables) as net:
        greeting = Greeting(Credentials("b", None, None, True), os.urandom(16), "a")
        with closing(dial(net["a"])) as connection:
            connection.sendall(greeting.opening())
            greeting.receive(connection.recv(4096))
            connection.sendall(b"\x20" + os.urandom(32))
            assert is_closed_by_the_other_side(connection)
        net.wait_until(lambda: "does not know the secret" in net["a"].log.read_text(), "told why", 5.0)


def invented(count: int) -> list[bytes]:
    """What a neighbour says that makes up brokers, by names as long as can be: some that nobody is linked with, and
    some behind itself."""
    behind = [f"behind-{number}".ljust(NAME_BYTES_MAX, "x") for number in range(count)]
    ends = [LinkClaim(name, 1_000, 10, 0, 0, 0) for name in ("a", *behind[:4_000])]
    said: list[Advert | InterestUpdate] = [Advert("liar", 1, 1, ends, {}, 0)]
    said += [Advert(f"ghost-{number}".ljust(NAME_BYTES_MAX, "x"), 1, 1, [], {}, 0) for number in range(4_097)]
    said += [Advert(name, 1, 1, [LinkClaim("liar", 1_000, 10, 0, 0, 0)], {}, 0) for name in behind]
    said += [InterestUpdate(name, 1, 1, 0, ["invented/#"], []) for name in behind]
    return [
        frame_codec.hello("liar", 1),
        *(frame_codec.control(number, encode(one)) for number, one in enumerate(said)),
    ]


def test_thousands_of_invented_brokers_split_nothing_and_a_restart_is_clean(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, dict.fromkeys(("a-b", "b-d", "a-liar"), 'latency = "1ms"'))
    del net.members["liar"]
    net.file.write_text(net.file.read_text() + '\n[limits]\nbrokers = 100\n\n[[events]]\nat = "1h"\njoin = "liar"\n')

    def refused() -> int:
        answer = net["a"].ask("/status")
        assert isinstance(answer, dict)
        return int(answer["overlay"]["brokers_refused"])

    def is_linked() -> bool:
        answer = net["b"].ask("/links")
        assert isinstance(answer, dict)
        return [link["state"] for link in answer["items"]] == ["up", "up"]

    try:
        net.start()
        with closing(greet(net["a"], "liar", "a")) as connection:
            connection.sendall(b"".join(invented(4_097)))
            net.wait_until(lambda: refused() > 4_000, "refused")
            asyncio.run(messages_cross(net, "while/it/lies"))
            net["b"].kill()
            net["b"].start()
            net.wait_until(lambda: net["b"].log.read_text().count("linked") >= 2, "linked again")
            net.wait_until(is_linked, "up again")
            asyncio.run(messages_cross(net, "after/a/restart"))
        asyncio.run(messages_cross(net, "after/it/lied"))
        net.wait_until(lambda: "advertises more brokers than" in net["a"].log.read_text(), "told")
        answer = net["a"].ask("/events")
        assert isinstance(answer, dict)
        assert {one["peer"] for one in answer["items"] if one["kind"] == "brokers-refused"} == {"liar"}
        assert "Traceback" not in net.logs()
    finally:
        net.end()
