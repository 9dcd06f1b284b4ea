"""Errors: one tree, with codes that users can look up in docs/errors.md.

    OVL-1xx   invalid input: of a user, a file, an application
    OVL-2xx   the environment: something needed does not answer, refuses, or is full
    OVL-3xx   a peer: it violates a protocol
    OVL-4xx   stored data: damaged, or not there any more
    OVL-9xx   a defect of Overlane

A code is stable: it is never reused for another error. Exceptions of libraries are mapped to these at the border where
they arise. Exceptions whose name begins with an underscore never leave their module.

Defects of Overlane are unexpected exceptions. One that concerns a single input, and leaves no important change
incomplete, is a `Failure`: the sender of the input is closed, everything else continues. Any other ends the process
before any of its effects is written or sent (`InDoubt`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

FAULTS_SHOWN_MAX = 20


class OverlaneError(Exception):
    """Every error that Overlane raises by itself."""

    error_code: ClassVar[str] = "OVL-900"

    def with_code(self) -> str:
        """As it is shown to users."""
        return coded(str(self), self.error_code)


def coded(message: str, error_code: str) -> str:
    """Each line of a message with a code at its end, where tools that read `file:line:` do not stumble over it."""
    return "\n".join(f"{line} [{error_code}]" for line in message.splitlines() or [""])


class ProtocolViolation(OverlaneError):
    """The peer's fault: close that link with this reason, count it, go on."""

    error_code = "OVL-301"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Unavailable(OverlaneError):
    """The environment's fault: something needed does not answer now. Retry with backoff, and say so."""

    error_code = "OVL-201"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.what = what
        self.reason = reason


class InDoubt(OverlaneError):
    """Our own fault: an input failed when it was half done, so that to go on could lose a message, or repeat it. The
    process has to end: nothing of the turn is written or acknowledged, and its inputs come again. `suspect` tells
    which message it was, where it was one (`pubsub.suspects`)."""

    def __init__(self, told: str, suspect: str = "") -> None:
        super().__init__(told)
        self.suspect = suspect

    error_code = "OVL-901"


@dataclass(frozen=True, slots=True)
class Failure:
    """Our own fault: an unexpected exception that concerned one input only. `kind` tells what it was an input of,
    `source` whose it was."""

    kind: str
    source: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in a file of the user's. `line` is 0 and `field` empty where the whole file is at fault."""

    file: str
    line: int
    field: str
    found: str
    allowed: str
    meant: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        field = f"{self.field}: " if self.field else ""
        hint = f"; did you mean {self.meant}?" if self.meant else ""
        return f"{place}: {field}found {self.found}, allowed is {self.allowed}{hint}"


class ConfigError(OverlaneError):
    """The user's fault: everything that was found wrong in one file, in the order of its lines."""

    error_code = "OVL-101"

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: fault.line))
        super().__init__(self.faults)

    def __str__(self) -> str:
        shown = [str(fault) for fault in self.faults[:FAULTS_SHOWN_MAX]]
        if more := len(self.faults) - len(shown):
            shown.append(f"{self.faults[0].file}: and {more} more")
        return "\n".join(shown)
