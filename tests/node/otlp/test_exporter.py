"""Sending to a collector: again where it may take it later, never where it will not."""

import json

import pytest
from collectors import Collector

from overlane.node.otlp import exporter
from overlane.node.otlp.exporter import QUEUE_MAX, Exporter
from waiting import eventually

EMPTY = b'{"resourceSpans": []}'


def test_what_a_collector_has_no_room_for_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "PAUSES_S", (0.01,) * 6)
    with Collector(503, 429).running() as collector:
        sender = Exporter(collector.endpoint)
        sender.send("/v1/traces", EMPTY)
        eventually(lambda: collector.requests == [("/v1/traces", json.loads(EMPTY))], "sent")
        sender.end()
        assert sender.dropped == 0


def test_what_a_collector_refuses_is_dropped_and_counted() -> None:
    with Collector(400).running() as collector:
        sender = Exporter(collector.endpoint)
        sender.send("/v1/traces", EMPTY)
        sender.send("/v1/traces", EMPTY)
        eventually(lambda: len(collector.requests) == 1, "the second taken")
        sender.end()
        assert sender.dropped == 1


def test_without_a_collector_the_queue_stays_within_its_limit_and_the_end_does_not_wait() -> None:
    with Collector().running() as collector:
        endpoint = collector.endpoint
    sender = Exporter(endpoint)
    for _ in range(QUEUE_MAX + 10):
        sender.send("/v1/traces", EMPTY)
    assert sender.dropped >= 9
    sender.end()
    assert sender.dropped >= QUEUE_MAX
