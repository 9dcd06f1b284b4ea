"""Metric points: the metrics of a broker, as Prometheus reads them, as OTLP (opentelemetry-proto, metrics/v1)."""

from collections.abc import Iterable
from typing import Any

from prometheus_client.core import Metric

from overlane.core.units import Nanos
from overlane.node.otlp.spans import attributes_of, resource_of, scope_of

_CUMULATIVE = 2


def metrics_request(broker: str, families: Iterable[Metric], began_ns: Nanos, now_ns: Nanos) -> dict[str, Any]:
    """An ExportMetricsServiceRequest."""
    metrics = [metric for family in families for metric in _metrics(family, str(began_ns), str(now_ns))]
    scope = {"scope": scope_of(), "metrics": metrics}
    return {"resourceMetrics": [{"resource": resource_of(broker), "scopeMetrics": [scope]}]}


def _metrics(family: Metric, began: str, now: str) -> Iterable[dict[str, Any]]:
    """Those of a histogram as one sum per sample name, each with its labels: `le` names the bound of a bucket."""
    is_sum = family.type in ("counter", "histogram")
    by_name: dict[str, list[dict[str, Any]]] = {}
    for sample in family.samples:
        if sample.name.endswith("_created"):
            continue
        point: dict[str, Any] = {
            "timeUnixNano": now,
            "asDouble": float(sample.value),
            "attributes": attributes_of(sample.labels),
        }
        if is_sum:
            point["startTimeUnixNano"] = began
        by_name.setdefault(sample.name, []).append(point)
    for name, points in by_name.items():
        told = {"name": name, "description": family.documentation}
        if is_sum:
            yield {**told, "sum": {"dataPoints": points, "aggregationTemporality": _CUMULATIVE, "isMonotonic": True}}
        else:
            yield {**told, "gauge": {"dataPoints": points}}
