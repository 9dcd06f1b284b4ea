"""Links of running brokers get worse through the admin API, and that is felt: by who measures them, by bulk, and not by
what is urgent and passes the same brokers."""

import asyncio
from collections.abc import Iterator
from statistics import median
from time import monotonic

import pytest

from overlane.client import Client, connect
from overlane.client.subscription import Subscription
from overlays import Member, RealOverlay, overlay
from waiting import eventually_async

pytestmark = pytest.mark.slow

LINE = {"a-b": 'latency = "2ms"\nemulate = true', "b-c": 'latency = "2ms"\nemulate = true'}
TABLES = """
[topics."urgent/#"]
deadline = "500ms"
[topics."orders/#"]
deadline = "500ms"
reliability = "reliable"
"""
BODY_BYTES = 16_000
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOverlay]:
    with overlay(tmp_path_factory.mktemp("weather"), LINE, TABLES, ("--chaos", "--no-sync")) as net:
        yield net


def link(member: Member, peer: str) -> dict[str, object]:
    answer = member.ask("/links")
    assert isinstance(answer, dict)
    return next(one for one in answer["items"] if one["peer"] == peer)


def measured(member: Member, peer: str, what: str) -> float:
    found = link(member, peer)[what]
    return float(found) if isinstance(found, int | float) else 0.0


class Ear:
    """What comes of a subscription: how old each message was, by topic. Bodies begin with when they were published."""

    def __init__(self, messages: Subscription, pause_s: float = 0.0) -> None:
        self.ages_s: dict[str, list[float]] = {}
        self._messages = messages
        self._pause_s = pause_s

    async def listen(self) -> None:
        async for message in self._messages:
            self.ages_s.setdefault(message.topic, []).append(monotonic() - float(bytes(message.body[:20])))
            if message.topic == "bulk/x":
                await asyncio.sleep(self._pause_s)

    def of(self, topic: str) -> list[float]:
        return self.ages_s.get(topic, [])


def body(more_bytes: int = 0) -> bytes:
    return f"{monotonic():20f}".encode() + bytes(more_bytes)


async def reached(speaker: Client, ear: Ear, *topics: str) -> None:
    while not all(ear.of(topic) for topic in topics):
        for topic in topics:
            await speaker.publish(topic, body())
        await asyncio.sleep(0.05)


def test_a_rate_that_is_put_on_a_link_is_the_rate_of_what_passes(line: RealOverlay) -> None:
    count, rate_bps = 32, 2_000_000

    async def seconds(here: Client, ear: Ear) -> float:
        before, began = len(ear.of("bulk/x")), monotonic()
        await here.publish_many("bulk/x", (body(BODY_BYTES) for _ in range(count)))
        await eventually_async(lambda: len(ear.of("bulk/x")) >= before + count, "all there", PATIENCE_S)
        return monotonic() - began

    async def story() -> tuple[float, float]:
        async with connect(line["b"].mqtt) as there, connect(line["a"].mqtt) as here:
            ear = Ear(there.subscribe("bulk/#"))
            listening = asyncio.create_task(ear.listen())
            await reached(here, ear, "bulk/probe")
            unlimited_s = await seconds(here, ear)
            line["a"].ask(f"/emulation/b?rate={rate_bps // 1_000_000}Mbit", "PUT")
            try:
                limited_s = await seconds(here, ear)
            finally:
                line["a"].ask("/emulation/b", "DELETE")
            listening.cancel()
            return unlimited_s, limited_s

    unlimited_s, limited_s = asyncio.run(story())
    assert limited_s >= 0.9 * count * BODY_BYTES * 8 / rate_bps
    assert limited_s > unlimited_s


def test_loss_and_jitter_that_are_put_on_links_are_measured_and_lose_nothing_reliable(line: RealOverlay) -> None:
    async def story() -> tuple[int, int]:
        async with connect(line["b"].mqtt) as there, connect(line["a"].mqtt) as here:
            ear = Ear(there.subscribe("orders/#", qos=1))
            listening = asyncio.create_task(ear.listen())
            await reached(here, ear, "orders/probe")
            line["a"].ask("/emulation/b?latency=2ms&loss=0.3", "PUT")
            line["c"].ask("/emulation/b?latency=2ms&jitter=40ms", "PUT")
            assert (link(line["a"], "b")["emulation"], link(line["b"], "a")["emulation"]) == (
                {"latency_ms": 2.0, "jitter_ms": 0.0, "loss": 0.3, "rate_bps": None, "is_cut": False},
                {"latency_ms": 2.0, "jitter_ms": 0.0, "loss": 0.0, "rate_bps": None, "is_cut": False},
            )
            sent = 0
            async with asyncio.timeout(PATIENCE_S):
                while measured(line["a"], "b", "loss") < 0.1 or measured(line["c"], "b", "jitter_ms") < 10:
                    await here.publish("orders/x", body(), qos=1)
                    sent += 1
            await eventually_async(lambda: len(ear.of("orders/x")) >= sent, "all there", PATIENCE_S)
            for name in ("a", "c"):
                line[name].ask("/emulation/b", "DELETE")
            listening.cancel()
            return sent, len(ear.of("orders/x"))

    sent, heard = asyncio.run(story())
    assert heard == sent > 0


@pytest.mark.parametrize("slow", ["link", "reader"])
def test_bulk_that_is_slow_farther_on_does_not_hold_up_what_is_urgent_and_comes_from_the_same_neighbour(
    line: RealOverlay, slow: str
) -> None:
    """Bulk from a to c is held up between b and c, or at c by its reader. It passes b over the one connection from a,
    as does what is urgent, for c and for b itself."""
    count = 50

    async def story() -> dict[str, list[float]]:
        async with (
            connect(line["a"].mqtt) as flooder,
            connect(line["a"].mqtt) as here,
            connect(line["b"].mqtt) as middle,
            connect(line["c"].mqtt) as far,
            connect(line["c"].mqtt) as far_slow,
        ):
            filters = f"urgent/{slow}/#", f"orders/{slow}/#"
            near, quick = Ear(middle.subscribe(*filters, qos=1)), Ear(far.subscribe(*filters, qos=1))
            bulky = Ear(far_slow.subscribe("bulk/#", qos=1, unread_max=10), pause_s=0.05 if slow == "reader" else 0.0)
            running = [asyncio.create_task(ear.listen()) for ear in (near, quick, bulky)]
            for ear in (near, quick):
                await reached(here, ear, f"urgent/{slow}/probe", f"orders/{slow}/probe")
            await reached(flooder, bulky, "bulk/probe")
            if slow == "link":
                line["b"].ask("/emulation/c?latency=2ms&rate=8Mbit", "PUT")

            async def flood() -> None:
                while True:
                    await flooder.publish("bulk/x", body(BODY_BYTES), qos=int(slow == "reader"))

            running.append(asyncio.create_task(flood()))
            await eventually_async(
                lambda: bool(bulky.of("bulk/x")) and bulky.of("bulk/x")[-1] > 0.3, "bulk held up", PATIENCE_S
            )
            bulky.ages_s.clear()
            for _ in range(count):
                running.append(asyncio.create_task(_publish(here, f"orders/{slow}/x")))
                await here.publish(f"urgent/{slow}/x", body())
                await asyncio.sleep(0.02)
            await eventually_async(
                lambda: len(near.of(f"orders/{slow}/x")) == len(quick.of(f"orders/{slow}/x")) == count,
                "all orders there",
                PATIENCE_S,
            )
            await eventually_async(lambda: len(bulky.of("bulk/x")) >= 10, "bulk going on", PATIENCE_S)
            for task in running:
                task.cancel()
            line["b"].ask("/emulation/c", "DELETE")
            urgent, orders = f"urgent/{slow}/x", f"orders/{slow}/x"
            return {
                "bulk": bulky.of("bulk/x"),
                "urgent to b": near.of(urgent),
                "urgent to c": quick.of(urgent),
                "orders to b": near.of(orders),
                "orders to c": quick.of(orders),
            }

    ages_s = asyncio.run(story())
    bulk_s = median(ages_s.pop("bulk"))
    told = {what: (len(ages), median(ages)) for what, ages in ages_s.items()}
    print("bulk", bulk_s, told)
    for what, ages in ages_s.items():
        assert median(ages) < bulk_s / 2, told
        assert len(ages) == count if what.startswith("orders") else len(ages) >= 0.9 * count, told


async def _publish(client: Client, topic: str) -> None:
    await client.publish(topic, body(), qos=1)
