"""Failures: unexpected exceptions of the broker itself, and their consequences.

    isolated    one input failed and no important change is incomplete: its sender is closed, everything else continues
    fatal       anything else: the process ends at once, in the state that a kill would leave. Nothing is written, sent
                or acknowledged after the exception, so unacknowledged messages are sent again after the restart

Isolated failures from many different sources within a short time are fatal too: then the input is not the cause.
Failures of one kind have the same exception at the same place of the code: the traceback of a kind is logged once; all
are counted.
"""

import asyncio
import logging
import os
from collections import Counter, deque
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn

from overlane.errors import Failure, InDoubt

SOURCES_MAX = 20
WITHIN_S = 60.0
"""Failures of so many different sources within this time end the process."""
TRACEBACKS_MAX = 1_000
"""That are logged in the life of a process."""
KINDS = (
    "admin",
    "client",
    "delivery",
    "login",
    "neighbour",
    "observer",
    "parcel",
    "timer",
    "transport",
    "web",
    "websocket",
    "will",
)
"""What can fail without ending the process."""
EXIT_STATUS = os.EX_SOFTWARE

log = logging.getLogger("overlane.node")


class Failures:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Isolated failures, by what the input was of."""
        self.remember: Callable[[str], None] = lambda _suspect: None
        """Told of a message that ends the process (`suspectfile`)."""
        self._told: set[tuple[str, str, str]] = set()
        self._latest: deque[tuple[float, str, str]] = deque()

    def isolated(self, failure: Failure, now_s: float | None = None) -> None:
        """Count it and log it; does not return if there are too many."""
        kind, source, error = failure.kind, failure.source, failure.error
        self.counts[kind] += 1
        place = kind, type(error).__name__, _place(error.__traceback__)
        is_first = place not in self._told and len(self._told) < TRACEBACKS_MAX
        if is_first:
            self._told.add(place)
            log.error("internal error, isolated: %s %s", kind, source, exc_info=error)
        else:
            log.warning("internal error, isolated: %s %s: %s at %s again", kind, source, *place[1:])
        if self._are_too_many(kind, source, monotonic() if now_s is None else now_s):
            self.fatal(f"{SOURCES_MAX} different inputs failed within {WITHIN_S:g} s", error)

    def fatal(self, where: str, error: BaseException) -> NoReturn:
        """End the process. What is on disk is whole; what is not was not acknowledged."""
        log.error("internal error, exiting with status %d: %s", EXIT_STATUS, where, exc_info=error)
        if isinstance(error, InDoubt) and error.suspect:
            self.remember(error.suspect)
        end_process()

    def look_at(self, done: "asyncio.Task[None]", what: str) -> None:
        """A task that has ended with an exception is not forgotten: the process ends."""
        if not done.cancelled() and (error := done.exception()) is not None:
            self.fatal(what, error)

    def _are_too_many(self, kind: str, source: str, now_s: float) -> bool:
        latest = self._latest
        latest.append((now_s, kind, source))
        while latest[0][0] < now_s - WITHIN_S or len(latest) > 10 * SOURCES_MAX:
            latest.popleft()
        return len({(kind, source) for _, kind, source in latest}) >= SOURCES_MAX


def unhandled(failures: Failures, context: dict[str, Any]) -> None:
    """Exception handler of the loop: an exception of a connection closes it, any other ends the process."""
    error, transport = context.get("exception"), context.get("transport")
    if not isinstance(error, Exception) or isinstance(error, OSError):  # the environment's, TLS included
        log.warning("%s: %s", context.get("message", "event loop"), error)
        return
    if transport is None:
        failures.fatal(str(context.get("message", "a callback of the event loop")), error)
    failures.isolated(Failure("transport", str(transport.get_extra_info("peername")), error))
    transport.abort()


def end_process() -> NoReturn:
    """At once: no other callback of the loop runs, and nothing that waits in memory is sent or written."""
    try:
        logging.shutdown()  # writes the lines that wait
    finally:
        os._exit(EXIT_STATUS)


def _place(traceback: TracebackType | None) -> str:
    """Where it was raised."""
    if traceback is None:
        return "?"
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
