"""Guards of pipeline commands: what is told before Spark is started, and what happens when a command is ended."""

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from urllib.parse import urlsplit

from overlane.errors import Unavailable
from overlane.extras import is_installed, missing_extra

CONNECT_PORT = 15002
WITHIN_S = 2.0
TERMINATED = 143


def check_remote(remote: str | None) -> None:
    """Unavailable if nothing listens at the address of a Spark Connect server: Spark would try for minutes."""
    if remote is None:
        return
    try:
        url = urlsplit(remote)
        host, port = url.hostname, url.port or CONNECT_PORT
    except ValueError:
        host, port = None, 0
    if not remote.startswith("sc://") or host is None:
        raise Unavailable(f"Spark at {remote}", "expected an address such as sc://host:15002")
    try:
        socket.create_connection((host, port), WITHIN_S).close()
    except OSError as refused:
        raise Unavailable(f"Spark at {remote}", refused.strerror or str(refused)) from None


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the command as an error does, so that the driver is stopped and its scratch files are removed."""

    def end(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        sys.exit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check_spark() -> None:
    """Unavailable if PySpark is not installed."""
    if not is_installed("pyspark"):
        raise Unavailable("Spark", missing_extra("pyspark", "pipeline"))
