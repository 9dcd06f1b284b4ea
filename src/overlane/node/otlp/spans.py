"""Spans: what a broker did with a sampled message, as values and as OTLP (opentelemetry-proto, trace/v1).

The names of attributes are those of the semantic conventions for messaging, as far as they have one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from overlane import __version__
from overlane.core.units import Nanos
from overlane.node.otlp.trace_context import TraceContext

PRODUCER, CONSUMER = 4, 5
"""SpanKind: who hands a message over, and who takes it."""
_ERROR = 2

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """`parent`: the span id before it in the trace; empty for the first."""

    context: TraceContext
    parent: str
    name: str
    kind: int
    began_ns: Nanos
    ended_ns: Nanos
    attributes: Mapping[str, Value] = field(default_factory=dict)
    error: str = ""


def trace_request(broker: str, spans: Sequence[Span]) -> dict[str, Any]:
    """An ExportTraceServiceRequest."""
    scope = {"scope": scope_of(), "spans": [_span(one) for one in spans]}
    return {"resourceSpans": [{"resource": resource_of(broker), "scopeSpans": [scope]}]}


def resource_of(broker: str) -> dict[str, Any]:
    return {"attributes": attributes_of({"service.name": "overlane", "service.instance.id": broker})}


def scope_of() -> dict[str, Any]:
    return {"name": "overlane", "version": __version__}


def attributes_of(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}


def _span(span: Span) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": span.context.trace_id,
        "spanId": span.context.span_id,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.began_ns),
        "endTimeUnixNano": str(span.ended_ns),
        "attributes": attributes_of(span.attributes),
        "flags": 1,
    }
    if span.parent:
        found["parentSpanId"] = span.parent
    if span.error:
        found["status"] = {"code": _ERROR, "message": span.error}
    return found
