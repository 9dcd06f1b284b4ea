"""Reservations in the Python client: what it sends to the broker."""

import asyncio
import json
from pathlib import Path

import pytest

from brokers import Overlane
from overlane.client import InvalidRequest, PublishRefused, Reserve, SubscribeRefused, Traffic, connect

VIDEO = Traffic(size=1000, period="10ms")


def test_traffic_is_a_document_and_user_properties() -> None:
    mixed = Traffic(size=(200, 1000), rate=(100, 200))
    assert json.loads(mixed.document("plant/#", "drop")) == {
        "filter": "plant/#",
        "excess": "drop",
        "size_min": 200,
        "size_max": 1000,
        "rate_avg": 100,
        "rate_max": 200,
    }
    bucket = Traffic(size=10, token_bucket=(100.0, 20.0))
    assert json.loads(bucket.document("a", "best-effort"))["token_bucket"] == {"r": 100.0, "b": 20.0}
    assert Reserve(mixed, latency="60ms", class_min="best-effort", style="FF").properties == (
        ("overlane-size", "200..1000"),
        ("overlane-rate", "100..200"),
        ("overlane-latency", "60ms"),
        ("overlane-class-min", "best-effort"),
        ("overlane-style", "FF"),
    )


def test_what_makes_no_sense_is_refused_before_anything_is_sent() -> None:
    for wrong in (
        lambda: Traffic(size=1000),
        lambda: Traffic(size=1000, rate=1, period="1s"),
        lambda: Traffic(size=1000, period="0s"),
        lambda: Reserve(VIDEO, latency="soon"),
        lambda: Reserve(VIDEO, class_min="good"),
        lambda: Reserve(VIDEO, style="XX"),
        lambda: VIDEO.document("a", "keep"),
    ):
        with pytest.raises(InvalidRequest):
            wrong()


async def _reserved(address: str) -> None:
    async with connect(address) as writer, connect(address) as reader:
        await writer.advertise("plant/#", VIDEO)
        async with reader.subscribe("plant/video", reserve=Reserve(VIDEO, latency="60ms")) as frames:
            await writer.publish("plant/video", b"frame")
            assert (await anext(frames)).body == b"frame"
        await writer.withdraw("plant/#")
        refused = reader.subscribe("plant/video", reserve=Reserve(VIDEO))
        with pytest.raises(SubscribeRefused, match="no publisher advertises this topic"):
            await refused.ready()
        with pytest.raises(PublishRefused, match="size_min"):
            await writer.advertise("plant/video", Traffic(size=(2, 1), rate=5))


def test_it_advertises_and_reserves_at_a_running_broker(tmp_path: Path) -> None:
    broker = Overlane(tmp_path)
    broker.start()
    try:
        asyncio.run(_reserved(broker.address))
    finally:
        broker.kill()
