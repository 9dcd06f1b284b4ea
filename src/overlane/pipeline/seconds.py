"""Seconds and minutes: which second a row is of, and minutes as masks of sixty bits.

Brokers count up to whole seconds of the clock and look at them a moment later. A row of 12:00:05.0003 is of the second
that began at 12:00:04. A minute of a broker's life, or of a link's, is kept as a number in which a bit stands for each
second: exact, small, and united by `or`.
"""

from pyspark.sql import Column
from pyspark.sql import functions as sf

from overlane.pipeline.units import MINUTE_S, SECOND_NS


def second_s(at_ns: str = "at_ns") -> Column:
    """The second that a count ending at that time is of."""
    return sf.expr(f"({at_ns} + {SECOND_NS // 2}) div {SECOND_NS} - 1")


def start_of(span_s: int, second: str = "second_s") -> Column:
    """The start of the minute, chunk, window or hour that a second is in."""
    return sf.col(second) - sf.pmod(sf.col(second), sf.lit(span_s))


def bit(second: str = "second_s") -> Column:
    return sf.expr(f"shiftleft(1L, cast(pmod({second}, {MINUTE_S}) as int))")


def seconds_of(mask: str) -> Column:
    """The seconds of a minute whose bits are set, from 0."""
    return sf.expr(f"filter(sequence(0, {MINUTE_S - 1}), second -> shiftright({mask}, second) & 1L = 1L)")


def first_of(mask: str) -> Column:
    return sf.element_at(seconds_of(mask), 1)


def last_of(mask: str) -> Column:
    return sf.element_at(seconds_of(mask), -1)
