"""Recordings as files: the lines of a history, compressed with gzip."""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from overlane.errors import ConfigError, Fault, Unavailable
from overlane.monitor.history import FORMAT, VERSION, Head
from overlane.monitor.overlay_state import OverlayDelta

MAGIC = b"\x1f\x8b"


def is_recording(path: Path) -> bool:
    """Detected by the first bytes; a network file is text."""
    try:
        with path.open("rb") as file:
            return file.read(2) == MAGIC
    except OSError:
        return False


def write_recording(path: Path, head: Head, changes: Iterable[OverlayDelta]) -> None:
    """Unavailable if the file cannot be written."""
    try:
        with gzip.open(path, "wb", compresslevel=6) as file:
            file.write(msgspec.json.encode(head) + b"\n")
            for change in changes:
                file.write(msgspec.json.encode(change) + b"\n")
    except OSError as error:
        raise Unavailable(str(path), error.strerror or str(error)) from None


def read_recording(path: Path) -> tuple[Head, list[OverlayDelta]]:
    """ConfigError if it is not a recording, or damaged."""
    try:
        with gzip.open(path, "rb") as file:
            return _read(iter(file), path)
    except (OSError, EOFError, zlib.error) as error:
        raise _invalid(path, f"a file that cannot be read ({error})") from None
    except msgspec.MsgspecError as error:
        raise _invalid(path, f"other content ({error})") from None


def _read(lines: Iterator[bytes], path: Path) -> tuple[Head, list[OverlayDelta]]:
    head = msgspec.json.decode(next(lines, b""), type=Head)
    if (head.format, head.version) != (FORMAT, VERSION):
        raise _invalid(path, f"version {head.version} of {head.format!a}")
    return head, [msgspec.json.decode(line, type=OverlayDelta) for line in lines]


def _invalid(path: Path, found: str) -> ConfigError:
    return ConfigError([Fault(str(path), 0, "", found, "a recording, written by overlane simulate --record")])
