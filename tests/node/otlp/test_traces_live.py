"""Traces of messages across two brokers that run, at a collector, and their metrics."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from collectors import Collector

from overlane.client import Message, connect
from overlays import RealOverlay, overlay
from waiting import eventually

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TABLES = """
[topics."alarms/#"]
deadline = "60ms"
[otlp]
endpoint = "{endpoint}"
sample = {sample}
topics = ["alarms/#"]
metrics = "1s"
"""


async def send(net: RealOverlay, *published: tuple[str, dict[str, str]]) -> list[Message]:
    """From a to b: what arrives of these, the last of which is on `end`."""
    async with connect(net["b"].mqtt) as reader, connect(net["a"].mqtt) as writer:
        found, ready = [], asyncio.Event()

        async def read() -> None:
            async for message in reader.subscribe("#", qos=1):
                ready.set()
                if message.topic == "end":
                    return
                if message.topic != "probe":
                    found.append(message)

        reading = asyncio.create_task(read())
        while not ready.is_set():
            await writer.publish("probe", b"", qos=1)
            await asyncio.sleep(0.05)
        for topic, properties in published:
            await writer.publish(topic, b"body", qos=1, properties=properties)
        await writer.publish("end", b"", qos=1)
        await asyncio.wait_for(reading, 30)
        return found


def header(is_sampled: bool) -> dict[str, str]:
    return {"traceparent": f"00-{TRACE}-{SPAN}-0{int(is_sampled)}", "colour": "red"}


@pytest.mark.slow
def test_a_message_has_one_trace_over_two_brokers_that_goes_on_with_that_of_its_publisher(tmp_path: Path) -> None:
    with Collector().running() as collector:
        tables = TABLES.format(endpoint=collector.endpoint, sample=0.0)
        with overlay(tmp_path, {"a-b": 'latency = "5ms"\nemulate = true'}, tables) as net:
            # Not sampled: by chance, by the publisher, or by the list of topics.
            plain = [("alarms/0", {}), ("alarms/1", header(False)), ("other/1", header(True))]
            arrived = asyncio.run(send(net, *plain, ("alarms/2", header(True))))
            eventually(lambda: len(collector.spans()) >= 2, "two spans", 30.0, net.logs)
            eventually(lambda: "overlane_messages_total" in collector.metrics(), "metrics", 30.0, net.logs)
            assert net["a"].stop() == 0
    published, delivered = sorted(collector.spans(), key=lambda one: one["kind"])
    _judge(published, delivered)
    marked = {message.topic: dict(message.properties) for message in arrived}
    assert marked == {
        "alarms/0": {},
        "alarms/1": header(False),
        "other/1": header(True),
        "alarms/2": {"colour": "red", "traceparent": f"00-{TRACE}-{published['spanId']}-01"},
    }
    directions = [
        one["attributes"][0]["value"] for one in collector.metrics()["overlane_messages_total"]["sum"]["dataPoints"]
    ]
    assert directions == [{"stringValue": "in"}, {"stringValue": "out"}]


def _judge(published: dict[str, Any], delivered: dict[str, Any]) -> None:
    assert (published["broker"], published["name"], published["kind"]) == ("a", "publish alarms/2", 4)
    assert (delivered["broker"], delivered["name"], delivered["kind"]) == ("b", "deliver alarms/2", 5)
    assert {published["traceId"], delivered["traceId"]} == {TRACE}
    assert (published["parentSpanId"], delivered["parentSpanId"]) == (SPAN, published["spanId"])
    told = delivered["attributes"]
    assert (told["overlane.origin"], told["overlane.deadline_ms"]) == ("a", 60.0)
    age_ms = (int(delivered["endTimeUnixNano"]) - int(delivered["startTimeUnixNano"])) / 1e6
    assert told["overlane.age_ms"] == pytest.approx(age_ms, abs=0.001)
    assert age_ms >= 5.0
    assert told["messaging.destination.name"] == published["attributes"]["messaging.destination.name"] == "alarms/2"


@pytest.mark.slow
def test_a_share_of_plain_messages_is_sampled_and_subscribers_get_the_context(tmp_path: Path) -> None:
    with Collector().running() as collector:
        tables = TABLES.format(endpoint=collector.endpoint, sample=1.0)
        with overlay(tmp_path, {"a-b": 'latency = "1ms"'}, tables) as net:
            arrived = asyncio.run(send(net, *((f"alarms/{number % 3}", {}) for number in range(30))))
            eventually(lambda: len(collector.spans()) == 60, "a span at each broker", 30.0, net.logs)
    of_a = {one["spanId"]: one for one in collector.spans() if one["broker"] == "a"}
    of_b = {one["parentSpanId"]: one for one in collector.spans() if one["broker"] == "b"}
    assert of_a.keys() == of_b.keys()
    assert all("parentSpanId" not in one for one in of_a.values())
    assert len({one["traceId"] for one in of_a.values()}) == 30
    headers = {message.properties["traceparent"] for message in arrived}
    assert headers == {f"00-{one['traceId']}-{one['spanId']}-01" for one in of_a.values()}
