"""OpenTelemetry: traces of sampled messages, and metrics, sent to a collector as OTLP/HTTP with JSON.

trace_context  the W3C header `traceparent`, which messages carry as a user property
spans          spans as values, and as OTLP
tracing        notes spans where messages are published and delivered
metric_points  the metrics of the broker as OTLP
exporter       the thread that sends
reporting      all parts together, for one broker

A broker without [otlp] imports nothing of it, and its messages take no other way.
"""

__all__: list[str] = []
