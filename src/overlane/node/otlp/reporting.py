"""Reporting: traces and metrics of one broker, for as long as it runs."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from time import time_ns

import msgspec
from prometheus_client.core import Metric

from overlane.core.units import SECOND
from overlane.network.schema import Otlp
from overlane.node.driver import Driver
from overlane.node.otlp.exporter import Exporter
from overlane.node.otlp.metric_points import metrics_request
from overlane.node.otlp.spans import Span, trace_request
from overlane.node.otlp.tracing import Tracing

SENT_WITHIN_S = 1.0
SPANS_TOGETHER = 256
SPANS_MAX = 2_048
"""Of one second; more are dropped."""

Families = Callable[[], Awaitable[Iterable[Metric]]]


class Reporting:
    """`families` tells the metrics of now."""

    def __init__(self, broker: str, endpoint: str, settings: Otlp, driver: Driver, families: Families) -> None:
        self._broker = broker
        self._settings = settings
        self._families = families
        self._began_ns = time_ns()
        self._spans: list[Span] = []
        self._exporter = Exporter(endpoint)
        self._tasks: list[asyncio.Task[None]] = []
        self.tracing = Tracing(broker, settings.sample, settings.topics, self._note, time_ns)
        publishing, observing = driver.server.pubsub.publishing, driver.observing
        publishing.accept = self.tracing.accepting(publishing.accept)  # type: ignore[method-assign]
        observing.delivered = self.tracing.delivering(observing.delivered)  # type: ignore[method-assign, assignment]
        driver.server.state.is_traced = self.tracing.traced

    def start(self) -> None:
        self._tasks.append(asyncio.create_task(self._send_spans_again_and_again()))
        if self._settings.metrics_ns is not None:
            self._tasks.append(asyncio.create_task(self._send_metrics_again_and_again(self._settings.metrics_ns)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._send_spans()
        await asyncio.get_running_loop().run_in_executor(None, self._exporter.end)

    def _note(self, span: Span) -> None:
        if len(self._spans) < SPANS_MAX:
            self._spans.append(span)
        else:
            self._exporter.dropped += 1

    async def _send_spans_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(SENT_WITHIN_S)
            self._send_spans()

    def _send_spans(self) -> None:
        spans, self._spans = self._spans, []
        for first in range(0, len(spans), SPANS_TOGETHER):
            together = spans[first : first + SPANS_TOGETHER]
            self._exporter.send("/v1/traces", msgspec.json.encode(trace_request(self._broker, together)))

    async def _send_metrics_again_and_again(self, every_ns: int) -> None:
        while True:
            await asyncio.sleep(every_ns / SECOND)
            families = await self._families()
            told = metrics_request(self._broker, families, self._began_ns, time_ns())
            self._exporter.send("/v1/metrics", msgspec.json.encode(told))
