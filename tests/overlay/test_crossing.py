"""MQTT across brokers that run: what any client anywhere may expect of any other."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import mqtt5
import pytest

from overlane.client import Client, connect
from overlane.client.message import Message
from overlays import RealOverlay, overlay
from waiting import WITHIN_S, eventually_async
from watched import Caller

pytestmark = pytest.mark.slow

LINE = {"a-b": 'latency = "1ms"', "b-c": 'latency = "1ms"'}
TABLES = """
[topics."past/#"]
reliability = "reliable"
history = 2
[[federation]]
broker = "c"
enter = ["open/#", "past/#", "order/#", "state/#", "death/#"]
"""


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOverlay]:
    """Three brokers in a row, the same for all tests here, which use topics of their own."""
    with overlay(tmp_path_factory.mktemp("line"), LINE, TABLES) as net:
        yield net


class Listener:
    """A client that remembers what it gets; `heard` is what that was, probes left out."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.messages: list[Message] = []

    @property
    def heard(self) -> list[tuple[str, bytes]]:
        return [(one.topic, bytes(one.body)) for one in self.messages if not one.topic.endswith("/probe")]

    async def is_reached_from(self, speaker: Client, prefix: str) -> None:
        """Until what the other client publishes under the prefix comes here."""
        while not any(one.topic == f"{prefix}/probe" for one in self.messages):
            await speaker.publish(f"{prefix}/probe", b"")
            await asyncio.sleep(0.05)


@asynccontextmanager
async def listening(address: str, *filters: str, qos: int = 0, **options: object) -> AsyncIterator[Listener]:
    async with connect(address, **options) as client:  # type: ignore[arg-type]
        listener = Listener(client)
        subscription = client.subscribe(*filters, qos=qos)

        async def read() -> None:
            async for message in subscription:
                listener.messages.append(message)

        reading = asyncio.create_task(read())
        try:
            yield listener
        finally:
            reading.cancel()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_come_once_and_in_order_two_hops_away(line: RealOverlay, qos: int) -> None:
    async def story() -> list[tuple[str, bytes]]:
        async with listening(line["c"].mqtt, f"order/{qos}/#", qos=qos) as there, connect(line["a"].mqtt) as here:
            await there.is_reached_from(here, f"order/{qos}")
            for number in range(50):
                await here.publish(f"order/{qos}/x", b"%d" % number, qos=qos)
            await eventually_async(lambda: len(there.heard) >= 50, "all there")
            return there.heard

    assert asyncio.run(story()) == [(f"order/{qos}/x", b"%d" % number) for number in range(50)]


def test_a_retained_message_is_there_for_late_subscribers_at_every_broker_until_it_is_taken_away(
    line: RealOverlay,
) -> None:
    async def late(name: str) -> list[tuple[str, bytes]]:
        """What comes to a new subscriber before anything that is published after it has subscribed."""
        async with listening(line[name].mqtt, "state/#") as listener:
            await listener.is_reached_from(listener.client, "state")
            return listener.heard

    async def all_late(*wanted: tuple[str, bytes]) -> None:
        """Until new subscribers anywhere get this, and nothing else."""
        async with asyncio.timeout(WITHIN_S):
            for name in ("a", "b", "c"):
                while await late(name) != list(wanted):
                    pass

    async def story() -> None:
        async with connect(line["a"].mqtt) as one, connect(line["c"].mqtt) as other:
            await one.publish("state/x", b"first", qos=1, retain=True)
            await all_late(("state/x", b"first"))
            await other.publish("state/x", b"second", qos=1, retain=True)
            await all_late(("state/x", b"second"))
            await one.publish("state/x", b"", qos=1, retain=True)
            await all_late()

    asyncio.run(story())


def test_a_will_is_heard_two_hops_away(line: RealOverlay) -> None:
    async def story() -> list[tuple[str, bytes]]:
        port = int(line["a"].mqtt.rpartition(":")[2])
        async with listening(line["c"].mqtt, "death/#", qos=1) as there, connect(line["a"].mqtt) as here:
            await there.is_reached_from(here, "death")
            with Caller(port) as mortal:
                will = mqtt5.Will("death/x", payload=b"gone", qos=mqtt5.QoS.AT_LEAST_ONCE)
                mortal.send(mqtt5.ConnectPacket("mortal", will=will))
                mortal.read(mqtt5.ConnAckPacket)
            await eventually_async(lambda: bool(there.heard), "the will there")
            return there.heard

    assert asyncio.run(story()) == [("death/x", b"gone")]


def test_a_shared_subscription_has_one_receiver_in_all_brokers(line: RealOverlay) -> None:
    async def story() -> tuple[list[tuple[str, bytes]], int, int]:
        async with (
            listening(line["a"].mqtt, "$share/workers/jobs/#", qos=1) as one,
            listening(line["b"].mqtt, "$share/workers/jobs/#", qos=1) as other,
            connect(line["a"].mqtt) as here,
        ):
            await other.is_reached_from(here, "jobs")
            await one.is_reached_from(here, "jobs")
            for number in range(20):
                await here.publish("jobs/x", b"%02d" % number, qos=1)
            await eventually_async(lambda: len(one.heard) + len(other.heard) >= 20, "all done")
            await asyncio.sleep(0.2)
            return sorted(one.heard + other.heard), len(one.heard), len(other.heard)

    done, here, there = asyncio.run(story())
    assert done == [("jobs/x", b"%02d" % number) for number in range(20)]
    assert (here > 0, there > 0) == (True, True)


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_under_way_to_the_last_member_of_a_group_at_a_broker_goes_to_a_member_elsewhere(
    tmp_path: Path, qos: int
) -> None:
    """It takes half a second to b, where the only member leaves before it comes."""
    far = {"a-b": 'latency = "500ms"\nemulate = true', "a-c": 'latency = "1ms"'}
    bodies = [b"%d" % number for number in range(20)]

    async def story(net: RealOverlay) -> list[bytes]:
        async with (
            connect(net["a"].mqtt) as speaker,
            listening(net["c"].mqtt, "$share/g/jobs/#", qos=qos) as stays,
        ):
            async with listening(net["b"].mqtt, "$share/g/jobs/#", qos=qos) as leaves:
                await stays.is_reached_from(speaker, "jobs")
                await leaves.is_reached_from(speaker, "jobs")
                await asyncio.gather(*(speaker.publish("jobs/1", body, qos=qos) for body in bodies))
            assert len(leaves.heard) < len(bodies) // 2  # of its half some are under way
            await eventually_async(lambda: len(stays.heard) + len(leaves.heard) >= len(bodies), "all there")
            return sorted((body for _, body in stays.heard + leaves.heard), key=int)

    with overlay(tmp_path, far) as net:
        assert asyncio.run(story(net)) == bodies


def test_late_subscribers_anywhere_get_the_past_that_is_kept(line: RealOverlay) -> None:
    async def story() -> list[tuple[str, bytes]]:
        async with connect(line["a"].mqtt) as here:
            for number in range(5):
                await here.publish("past/x", b"%d" % number, qos=1)
        async with listening(line["c"].mqtt, "past/#", qos=1) as late:
            await eventually_async(lambda: len(late.heard) >= 2, "the past there")
            return late.heard

    assert asyncio.run(story()) == [("past/x", b"3"), ("past/x", b"4")]


def test_what_may_not_enter_a_domain_does_not(line: RealOverlay) -> None:
    async def story() -> list[tuple[str, bytes]]:
        async with listening(line["c"].mqtt, "#", qos=1) as guarded, connect(line["a"].mqtt) as here:
            await guarded.is_reached_from(here, "open")
            await here.publish("closed/x", b"no", qos=1)
            await here.publish("open/x", b"yes", qos=1)
            await eventually_async(lambda: ("open/x", b"yes") in guarded.heard, "the open one there")
            return [one for one in guarded.heard if one[0] in {"closed/x", "open/x"}]

    assert asyncio.run(story()) == [("open/x", b"yes")]


def test_a_session_that_is_kept_gets_what_came_from_elsewhere_while_it_was_away(line: RealOverlay) -> None:
    async def story() -> list[tuple[str, bytes]]:
        kept = {"client_id": "away", "session_expiry": "60s"}
        async with listening(line["b"].mqtt, "away/#", qos=1, **kept) as before, connect(line["a"].mqtt) as here:
            await before.is_reached_from(here, "away")
        async with connect(line["a"].mqtt) as here:
            for number in range(10):
                await here.publish("away/x", b"%d" % number, qos=1)
        async with listening(line["b"].mqtt, "away/#", qos=1, **kept) as after:
            await eventually_async(lambda: len(after.heard) >= 10, "all there")
            return after.heard

    assert asyncio.run(story()) == [("away/x", b"%d" % number) for number in range(10)]


def test_a_subscriber_can_ask_for_a_deadline_where_the_message_is_published(line: RealOverlay) -> None:
    async def story() -> list[object]:
        async with connect(line["b"].mqtt) as there, connect(line["a"].mqtt) as here:
            messages = there.subscribe("wish/#", deadline="70ms", reliability="reliable")
            got: list[Message] = []

            async def read() -> None:
                async for message in messages:
                    got.append(message)

            reading = asyncio.create_task(read())
            while not got:
                await here.publish("wish/x", b"")
                await asyncio.sleep(0.05)
            reading.cancel()
            answer = line["a"].ask("/routes")
            assert isinstance(answer, dict)
            return [(one["deadline_ms"], one["reliable"]) for one in answer["items"]]

    assert (70.0, True) in asyncio.run(story())
