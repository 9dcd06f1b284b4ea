"""Exporter: sends requests to a collector in a thread of its own.

Requests wait in a bounded queue. When the collector does not answer, a request is tried again with growing pauses for
about a minute; what comes meanwhile and finds the queue full is dropped and counted. The broker never waits.
"""

import logging
import queue
import threading
from urllib.error import HTTPError
from urllib.request import Request, urlopen

QUEUE_MAX = 64
TIMEOUT_S = 10.0
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
RETRIED = (429, 502, 503, 504)
"""Status codes after which a request may be sent again (OTLP, section "Retryable Response Codes")."""

log = logging.getLogger("overlane.otlp")


class Exporter:
    """`endpoint`: the address of the collector, without the path of a signal."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._requests: queue.Queue[tuple[str, bytes] | None] = queue.Queue(QUEUE_MAX)
        self._is_ending = threading.Event()
        self._is_failing = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def send(self, path: str, body: bytes) -> None:
        try:
            self._requests.put_nowait((path, body))
        except queue.Full:
            self.dropped += 1

    def end(self) -> None:
        """Send what waits, each once; blocks for at most the time of one request."""
        self._is_ending.set()
        try:
            self._requests.put_nowait(None)
        except queue.Full:
            self.dropped += 1
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        while (request := self._next()) is not None:
            if not any(self._try(*request, pause_s) for pause_s in (0.0, *PAUSES_S)):
                self.dropped += 1

    def _next(self) -> tuple[str, bytes] | None:
        if self._is_ending.is_set() and self._requests.empty():
            return None
        return self._requests.get()

    def _try(self, path: str, body: bytes, pause_s: float) -> bool:
        """Whether nothing is left to do: it was sent, or will never be."""
        if pause_s and self._is_ending.wait(pause_s):
            self.dropped += 1
            return True
        asked = Request(self._endpoint + path, body, {"Content-Type": "application/json"})
        try:
            with urlopen(asked, timeout=TIMEOUT_S):
                self._told("")
                return True
        except HTTPError as error:
            self._told(f"status {error.code}")
            if error.code in RETRIED:
                return False
            self.dropped += 1
            return True
        except OSError as error:
            self._told(str(getattr(error, "reason", error)))
            return False

    def _told(self, trouble: str) -> None:
        """Log the first failure, and the first success after it."""
        if trouble and not self._is_failing:
            log.warning("the collector at %s does not accept traces and metrics: %s", self._endpoint, trouble)
        elif not trouble and self._is_failing:
            log.info("the collector at %s accepts traces and metrics again", self._endpoint)
        self._is_failing = bool(trouble)
