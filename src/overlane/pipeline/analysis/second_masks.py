"""Seconds of rows, and minutes as bit masks of 60 seconds.

Brokers sample shortly after each full second, so a row of 12:00:05.0003 covers the second that began at 12:00:04. A
minute of a broker or a link is a 64-bit mask with one bit per second: exact, small, and merged with `or`.
"""

from pyspark.sql import Column
from pyspark.sql import functions as sf

from overlane.pipeline.units import MINUTE_S, SECOND_NS


def second_s(at_ns: str = "at_ns") -> Column:
    """The second that a sample taken at this time covers."""
    return sf.expr(f"({at_ns} + {SECOND_NS // 2}) div {SECOND_NS} - 1")


def window_start(span_s: int, second: str = "second_s") -> Column:
    """Start of the minute, chunk, window or hour that contains a second."""
    return sf.col(second) - sf.pmod(sf.col(second), sf.lit(span_s))


def second_bit(second: str = "second_s") -> Column:
    return sf.expr(f"shiftleft(1L, cast(pmod({second}, {MINUTE_S}) as int))")


def seconds_in(mask: str) -> Column:
    """The seconds of a minute, from 0, whose bits are set."""
    return sf.expr(f"filter(sequence(0, {MINUTE_S - 1}), second -> shiftright({mask}, second) & 1L = 1L)")


def first_second(mask: str) -> Column:
    return sf.element_at(seconds_in(mask), 1)


def last_second(mask: str) -> Column:
    return sf.element_at(seconds_in(mask), -1)
