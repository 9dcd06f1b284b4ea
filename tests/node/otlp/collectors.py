"""A collector for OpenTelemetry on this machine. What it takes has to be what the protocol defines."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format  # type: ignore[import-untyped]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS: dict[str, Any] = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Collector:
    """`statuses`: what it answers first, before it takes what comes."""

    def __init__(self, *statuses: int) -> None:
        self.requests: list[tuple[str, Any]] = []
        self.faults: list[str] = []
        self._statuses = list(statuses)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def spans(self) -> list[dict[str, Any]]:
        """All that came, each with the name of its broker and its attributes as a plain mapping."""
        found = []
        for path, told in list(self.requests):
            for resource in told["resourceSpans"] if path == "/v1/traces" else ():
                broker = plain(resource["resource"]["attributes"])["service.instance.id"]
                for scope in resource["scopeSpans"]:
                    found += [
                        {**one, "broker": broker, "attributes": plain(one["attributes"])} for one in scope["spans"]
                    ]
        return found

    def metrics(self) -> dict[str, Any]:
        """The last that came of each name."""
        return {
            metric["name"]: metric
            for path, told in list(self.requests)
            for resource in (told["resourceMetrics"] if path == "/v1/metrics" else ())
            for scope in resource["scopeMetrics"]
            for metric in scope["metrics"]
        }

    @contextmanager
    def running(self) -> Iterator["Collector"]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
            assert self.faults == []
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = collector._statuses.pop(0) if collector._statuses else 200
                if status == 200:
                    try:
                        json_format.Parse(body, KINDS[self.path]())
                        collector.requests.append((self.path, json.loads(body)))
                    except (json_format.ParseError, KeyError) as error:
                        collector.faults.append(f"{self.path}: {error!r}")
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in attributes}
