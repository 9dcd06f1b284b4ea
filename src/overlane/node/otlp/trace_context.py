"""Trace context: the W3C header `traceparent` (https://www.w3.org/TR/trace-context/), as a user property of messages.

00-<trace id: 32 hex digits>-<span id: 16 hex digits>-<flags: 2 hex digits>
"""

import re
from collections.abc import Iterable
from random import Random
from typing import NamedTuple

PROPERTY = "traceparent"
SAMPLED = 0x01

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(NamedTuple):
    trace_id: str
    span_id: str
    is_sampled: bool

    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{SAMPLED if self.is_sampled else 0:02x}"

    def child(self, luck: Random) -> "TraceContext":
        return self._replace(span_id=_identifier(luck, 16))


def new_trace(luck: Random) -> TraceContext:
    return TraceContext(_identifier(luck, 32), _identifier(luck, 16), True)


def parse(header: str) -> TraceContext | None:
    """None if it is invalid: then the message is as one without. Later versions may have more behind the flags."""
    found = _FORM.fullmatch(header)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & SAMPLED))


def context_of(user_properties: Iterable[tuple[str, str]]) -> TraceContext | None:
    """Of the first property of this name."""
    header = next((value for name, value in user_properties if name == PROPERTY), None)
    return None if header is None else parse(header)


def with_context(user_properties: Iterable[tuple[str, str]], context: TraceContext) -> tuple[tuple[str, str], ...]:
    """The properties with this context instead of any other."""
    others = (pair for pair in user_properties if pair[0] != PROPERTY)
    return (*others, (PROPERTY, context.header()))


def _identifier(luck: Random, digits: int) -> str:
    return f"{luck.randrange(1, 16**digits):0{digits}x}"
