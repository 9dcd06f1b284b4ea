"""Incarnations: the numbers of a broker's runs, each greater than those before.

All brokers know a run of a broker by its number, and 32 bits of it go with every parcel. If the store was lost, the
wall clock in seconds keeps the number growing. The clock is never trusted alone: one that is behind gives a number that
others know to be past, and one that is far ahead would use up the numbers. So the stored number counts first, and the
clock only within bounds. If neighbours know a later incarnation than this one, the broker starts another one after that
(`next_after`).
"""

from overlane.core.records import THE_BROKER, RecordKind

TABLE = "store"
INCARNATION = b"incarnation"
INSTANCE = b"instance"
"""Keys of the records by which a store tells runs of a broker apart, and brokers of one name."""

INCARNATION_MAX = (1 << 32) - 1
CLOCK_MAX = 0xE000_0000
"""A clock beyond this, in the year 2089, is wrong. What is left above are numbers for half a billion starts."""
CLOCK_LEAP_MAX = 10 * 365 * 86_400
"""A clock so far ahead of the last start is wrong too."""
TOLD_LEAP_MAX = 1024
"""How far above what a clock may give others are followed."""


def choose(stored: int | None, clock_s: int, least: int = 0) -> tuple[int, str]:
    """The incarnation to start with now, and a warning to log, or "". `least`: the lower bound."""
    is_clock_right = 0 < clock_s <= CLOCK_MAX
    if stored is not None and not 0 <= stored < INCARNATION_MAX:
        chosen = max(clock_s if is_clock_right else 1, least)
        return chosen, f"the stored incarnation {stored} has no successor: begins anew with {chosen}"
    if stored is None:
        if is_clock_right:
            return max(clock_s, least, 1), ""
        return max(1, least), f"the clock says {clock_s} seconds since 1970, which cannot be: it is not heeded"
    following = max(stored + 1, least)
    if clock_s > min(CLOCK_MAX, stored + CLOCK_LEAP_MAX) and stored >= CLOCK_LEAP_MAX:
        return following, f"the clock is more than ten years ahead of the last start: it is not heeded ({clock_s} s)"
    if clock_s > CLOCK_MAX:
        return following, f"the clock says {clock_s} seconds since 1970, which cannot be: it is not heeded"
    return max(following, clock_s), ""


def next_after(known: int, mine: int) -> int | None:
    """The incarnation to restart with if others know a later one than ours; None if that is implausible: a liar must
    not use up the numbers."""
    if known < mine or known >= INCARNATION_MAX:
        return None
    if known > CLOCK_MAX and known - mine > TOLD_LEAP_MAX:
        return None
    return known + 1


IDENTITY_KIND = RecordKind(TABLE, lambda _: THE_BROKER, lambda _, value: int(value))
