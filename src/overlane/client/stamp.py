"""Stamps: the publish time of a message, from which its reader computes the age.

    overlane-stamp    BOOT.MONOTONIC.WALL

BOOT identifies a boot of a machine; within it the monotonic clocks of all processes agree to the nanosecond, and the
age is exact. Between machines only the wall clocks can be compared, and the age is as accurate as they are.
"""

from dataclasses import dataclass

from overlane.core.units import Nanos

STAMP_PROPERTY = "overlane-stamp"


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment on the clocks of one machine."""

    boot: str
    monotonic_ns: Nanos
    wall_ns: Nanos

    def __str__(self) -> str:
        return f"{self.boot}.{self.monotonic_ns}.{self.wall_ns}"

    def since(self, earlier: "Moment") -> Nanos:
        if self.boot == earlier.boot:
            return self.monotonic_ns - earlier.monotonic_ns
        return self.wall_ns - earlier.wall_ns


def parse_stamp(text: str) -> Moment | None:
    """None where it is no stamp: properties of messages are anyone's."""
    parts = text.split(".")
    if len(parts) != 3 or len(text) > 100 or not all(part.isascii() and part.isdigit() for part in parts[1:]):
        return None
    return Moment(parts[0], int(parts[1]), int(parts[2]))
