"""The header of W3C trace contexts."""

from random import Random

import pytest

from overlane.node.otlp.trace_context import TraceContext, context_of, new_trace, parse, with_context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (f"00-{TRACE}-{SPAN}-01", TraceContext(TRACE, SPAN, True)),
        (f"00-{TRACE}-{SPAN}-00", TraceContext(TRACE, SPAN, False)),
        (f"00-{TRACE}-{SPAN}-03", TraceContext(TRACE, SPAN, True)),
        (f"cc-{TRACE}-{SPAN}-01-more", TraceContext(TRACE, SPAN, True)),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}", None),
        ("", None),
    ],
)
def test_a_header_is_read_as_the_recommendation_says(header: str, found: TraceContext | None) -> None:
    assert parse(header) == found


def test_a_new_context_takes_the_place_of_an_old_one_and_nothing_else_changes() -> None:
    luck = Random(1)
    context = new_trace(luck)
    child = context.child(luck)
    assert (child.trace_id, child.is_sampled) == (context.trace_id, True)
    assert child.span_id != context.span_id
    pairs = with_context((("a", "1"), ("traceparent", context.header()), ("b", "2")), child)
    assert pairs == (("a", "1"), ("b", "2"), ("traceparent", child.header()))
    assert context_of(pairs) == child
    assert context_of((("a", "1"),)) is None
