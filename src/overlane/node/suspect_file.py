"""The suspect file: messages that have ended the process, written as the last action of the process.

It is beside the store and not in it: nothing is written to the store when the process ends because of an internal
error. Each line has a digest (`pubsub.suspects`) and the time. Incomplete and old lines are ignored.
"""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import time

from overlane.pubsub.suspects import ENDINGS_MAX

FILE = "broker.suspects"
LINES_MAX = 256
REMEMBERED_S = 7 * 86_400


class SuspectFile:
    def __init__(self, directory: Path, clock_s: Callable[[], float] = time) -> None:
        self._path = directory / FILE
        self._clock_s = clock_s

    def refused(self) -> frozenset[str]:
        """The messages that have ended the process too often."""
        return frozenset(suspect for suspect, times in Counter(self._lines()).items() if times >= ENDINGS_MAX)

    def note(self, suspect: str) -> None:
        """This message ends the process. Whatever goes wrong here must not keep it from ending."""
        with suppress(OSError):
            lines = [*self._lines_with_times(), (suspect, int(self._clock_s()))][-LINES_MAX:]
            part = self._path.with_suffix(".part")
            with part.open("w", encoding="ascii") as file:
                file.writelines(f"{one} {at_s}\n" for one, at_s in lines)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)

    def _lines(self) -> list[str]:
        return [suspect for suspect, _ in self._lines_with_times()]

    def _lines_with_times(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        with suppress(OSError):
            for line in self._path.read_text("ascii", "replace").splitlines():
                suspect, _, at = line.partition(" ")
                if at.isdecimal() and self._clock_s() - int(at) < REMEMBERED_S:
                    found.append((suspect, int(at)))
        return found
