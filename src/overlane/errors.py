"""What can go wrong, by whose fault: the peer's, the user's, or the environment's.

Faults of our own are no errors to handle: a broken invariant stops the process loudly. Exceptions of libraries are
mapped to these at the border where they arise, and do not travel further up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FAULTS_SHOWN_MAX = 20


class ProtocolViolation(Exception):
    """The peer's fault: close that link with this reason, count it, go on."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Unavailable(Exception):
    """The environment's fault: something needed does not answer now. Retry with backoff, and say so."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.what = what
        self.reason = reason


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


class ConfigError(Exception):
    """The user's fault: everything that was found wrong in one file, in the order of its lines."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: fault.line))
        super().__init__(self.faults)

    def __str__(self) -> str:
        shown = [str(fault) for fault in self.faults[:FAULTS_SHOWN_MAX]]
        if more := len(self.faults) - len(shown):
            shown.append(f"{self.faults[0].file}: and {more} more")
        return "\n".join(shown)
