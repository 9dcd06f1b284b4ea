"""Logs: one line per event, on standard error, as text for people or as JSON for programs.

    2026-03-01T12:00:00.123Z info    overlane.client  connected  client=pump-7 user=alice address=10.0.0.9:40112
    {"time":"2026-03-01T12:00:00.123Z","level":"info","logger":"overlane.client","event":"connected","client":"pump-7",...}

An event is a sentence with fields: `log.info("connected", extra=fields(client=...))`. Values that a client may have
chosen are escaped so that they cannot end the line, or look like another one. Passwords, tokens and payloads are never
logged, at any level.

Unauthenticated clients must not flood the log. Of the lines logged at one place of the code, only some pass in a
period, except errors; the next one that passes gives the number of suppressed lines. Events of clients are limited by
the client log.

Lines are written by a separate thread. A slow reader of the log delays nothing: lines without room are dropped, and
their number is logged when there is room again.
"""

import atexit
import logging
import os
import sys
import threading
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from json import dumps
from select import select
from time import monotonic_ns

import msgspec

from overlane.core.units import SECOND, Nanos
from overlane.node.logs.throttle import Throttle

LINES_MAX = 10_000
REPEATED_MAX = 20
REPEATED_WITHIN: Nanos = 10 * SECOND
CLIENTS = "overlane.client"
"""The logger of what happens to clients."""

CLOSE_S = 2.0

Value = str | int | float | bool | None


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


class Level(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def fields(**values: Value) -> dict[str, dict[str, Value]]:
    """What stands beside an event; those that are None are left out. To be given as `extra`."""
    return {"fields": {name: value for name, value in values.items() if value is not None}}


def set_up(form: Format, level: Level, descriptor: int | None = None) -> "Writer":
    """From now on everything that is logged goes to standard error, or to another descriptor."""
    lines = JsonLines() if form is Format.JSON else TextLines()
    writer = Writer(sys.stderr.fileno() if descriptor is None else descriptor, lines)
    handler = _Handler(writer)
    handler.setFormatter(lines)
    handler.addFilter(Repetition())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # of libraries only what matters
    logging.getLogger("overlane").setLevel(level.value.upper())
    logging.captureWarnings(True)
    atexit.register(writer.close)
    return writer


# Lines


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        beside = "".join(f" {name}={_quoted(value)}" for name, value in _fields(record).items())
        event = printable(record.getMessage())
        line = f"{_time(record)} {record.levelname.lower():<7} {record.name}  {event}{' ' if beside else ''}{beside}"
        trace = _traceback(self, record)
        return f"{line}  {printable(trace)}" if trace else line


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Value] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line.update(_fields(record))
        if trace := _traceback(self, record):
            line["traceback"] = trace
        try:
            return msgspec.json.encode(line).decode()
        except UnicodeEncodeError:  # names of files may have bytes in them that are no text
            return dumps(line)


def printable(text: str) -> str:
    """Everything that would not be seen as itself on a terminal is escaped: ends of lines, controls, reversals."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else dumps(one)[1:-1] for one in text)


def _quoted(value: Value) -> str:
    if not isinstance(value, str):
        return dumps(value)
    if value and value.isprintable() and not any(one in ' "=\\' for one in value):
        return value
    return printable(dumps(value, ensure_ascii=False))


def _fields(record: logging.LogRecord) -> dict[str, Value]:
    return getattr(record, "fields", {})


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info and record.exc_info[0] is not None:
        return formatter.formatException(record.exc_info)
    return ""


# Measure


class Repetition(logging.Filter):
    """Lets so many lines of each place in the code pass in a period."""

    def __init__(self, lines_max: int = REPEATED_MAX, period_ns: Nanos = REPEATED_WITHIN) -> None:
        super().__init__()
        self._throttle: Throttle[tuple[str, int]] = Throttle(lines_max, period_ns)
        self._held: dict[tuple[str, int], int] = {}
        self._one = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR or record.name == CLIENTS:
            return True
        place = record.pathname, record.lineno
        with self._one:
            now = monotonic_ns()
            self._held.update(self._throttle.due(now))
            if not self._throttle.passes(place, now):
                return False
            held = self._held.pop(place, 0)
        if held:
            record.fields = {**_fields(record), "held": held}
        return True


# Writing


class _Handler(logging.Handler):
    def __init__(self, writer: "Writer") -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.write(self.format(record))
        except Exception:
            # A line that cannot be logged must not end its caller.
            self._writer.write(f"a line of {record.name} at {record.pathname}:{record.lineno} cannot be shown")

    def close(self) -> None:
        """Write the lines that wait."""
        super().close()
        self._writer.close()


class Writer:
    """Writes lines in a thread of its own. `lost` counts those that found no room."""

    def __init__(self, descriptor: int, form: logging.Formatter, lines_max: int = LINES_MAX) -> None:
        self._descriptor = descriptor
        self._form = form
        self._lines_max = lines_max
        self._lines: deque[str] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._untold = 0
        self.lost = 0
        self._thread = threading.Thread(target=self._run, name="overlane-log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        with self._changed:
            if len(self._lines) >= self._lines_max:
                self.lost += 1
                self._untold += 1
                return
            self._lines.append(line)
            self._changed.notify()

    def close(self, patience_s: float = CLOSE_S) -> None:
        """Write what is left, unless that takes too long."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(patience_s)

    def _run(self) -> None:
        while lines := self._next():
            data = "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
            with suppress(OSError):  # nobody is left to read it
                self._write_all(data)

    def _next(self) -> list[str]:
        with self._changed:
            while not self._lines and not self._is_closing:
                self._changed.wait()
            lines = list(self._lines)
            self._lines.clear()
            if self._untold:
                lines.append(self._form.format(_lost(self._untold)))
                self._untold = 0
            return lines

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # whoever shares the descriptor may have made it so
                select([], [self._descriptor], [])


def _lost(lines: int) -> logging.LogRecord:
    told = {"name": "overlane.log", "levelno": logging.WARNING, "levelname": "WARNING", "fields": {"lines": lines}}
    return logging.makeLogRecord(told | {"msg": "log lines were dropped: they were not read fast enough"})
