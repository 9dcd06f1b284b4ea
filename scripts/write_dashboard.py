"""Write deploy/monitoring: alert rules for Prometheus, and a dashboard for Grafana, from the tables below.

    python scripts/write_dashboard.py

tests/docs/test_deployment.py compares the files with the tables, and the metrics in them with those of running brokers.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent.parent / "deploy" / "monitoring"
RULES = "overlane.rules.yaml"
DASHBOARD = "overlane-dashboard.json"


class Alert(NamedTuple):
    name: str
    expression: str
    lasts: str
    severity: str
    summary: str


class Panel(NamedTuple):
    title: str
    expression: str
    legend: str
    unit: str


ALERTS = (
    Alert("OverlaneBrokerDown", 'up{job="overlane"} == 0', "1m", "critical", "A broker does not answer."),
    Alert("OverlaneNotReady", "overlane_ready == 0", "1m", "critical", "A broker accepts no clients: see /ready."),
    Alert("OverlaneStoreFailing", "overlane_store_failing == 1", "10s", "critical", "Writing to disk fails."),
    Alert(
        "OverlaneLinkFailed",
        'overlane_link_state{state=~"failed|down"} == 1',
        "1m",
        "warning",
        "The link to {{ $labels.peer }} is down.",
    ),
    Alert(
        "OverlaneLinkLossy",
        "overlane_link_loss_ratio > 0.05",
        "5m",
        "warning",
        "The link to {{ $labels.peer }} loses packets.",
    ),
    Alert(
        "OverlanePathsSuspected",
        "overlane_overlay_suspected_links > 0",
        "1m",
        "warning",
        "Routes avoid links between other brokers: messages over them did not arrive.",
    ),
    Alert(
        "OverlaneLoopLag",
        'overlane_loop_lag_seconds{of="worst"} > 0.5',
        "2m",
        "warning",
        "The event loop is blocked for more than half a second: all messages wait.",
    ),
    Alert(
        "OverlaneDropped",
        "sum by (instance, reason) (rate(overlane_dropped_total[5m])) > 0",
        "5m",
        "warning",
        "Messages to clients are dropped: {{ $labels.reason }}.",
    ),
    Alert(
        "OverlaneInternalErrors",
        "increase(overlane_internal_errors_total[15m]) > 0",
        "0s",
        "warning",
        "A defect of the broker was isolated: see its log.",
    ),
    Alert(
        "OverlaneSlowDisk",
        "histogram_quantile(0.99, sum by (le, instance) (rate(overlane_store_commit_seconds_bucket[5m]))) > 0.25",
        "5m",
        "warning",
        "Acknowledgements wait for the disk for more than 250 ms.",
    ),
)

PANELS = (
    Panel("Ready brokers", "sum(overlane_ready)", "ready", "short"),
    Panel("Clients", "overlane_clients_connected", "{{instance}}", "short"),
    Panel(
        "Messages per second",
        "sum by (instance, direction) (rate(overlane_messages_total[1m]))",
        "{{instance}} {{direction}}",
        "ops",
    ),
    Panel(
        "Bytes per second",
        "sum by (instance, direction) (rate(overlane_bytes_total[1m]))",
        "{{instance}} {{direction}}",
        "Bps",
    ),
    Panel(
        "Dropped messages per second",
        "sum by (instance, reason) (rate(overlane_dropped_total[5m])) > 0",
        "{{instance}} {{reason}}",
        "ops",
    ),
    Panel(
        "Refused per second",
        "sum by (instance, reason) (rate(overlane_refused_total[5m])) > 0",
        "{{instance}} {{reason}}",
        "ops",
    ),
    Panel("Queued messages", "overlane_queue_messages", "{{instance}}", "short"),
    Panel("Link latency", "overlane_link_latency_seconds", "{{instance}} to {{peer}}", "s"),
    Panel("Link loss", "overlane_link_loss_ratio", "{{instance}} to {{peer}}", "percentunit"),
    Panel("Link queues", "overlane_link_queue_bytes", "{{instance}} to {{peer}}", "bytes"),
    Panel("Links by state", "sum by (state) (overlane_link_state)", "{{state}}", "short"),
    Panel(
        "Commit time, 99th percentile",
        "histogram_quantile(0.99, sum by (le, instance) (rate(overlane_store_commit_seconds_bucket[5m])))",
        "{{instance}}",
        "s",
    ),
    Panel("Loop lag", "overlane_loop_lag_seconds", "{{instance}} {{of}}", "s"),
    Panel("Memory", "process_resident_memory_bytes", "{{instance}}", "bytes"),
)
COLUMNS, WIDTH, HEIGHT = 2, 12, 8


def rules() -> str:
    """As YAML: JSON strings are YAML strings."""
    lines = ["# Made by scripts/write_dashboard.py.", "groups:", "  - name: overlane", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.lasts}",
            f"        labels: {{ severity: {alert.severity} }}",
            f"        annotations: {{ summary: {json.dumps(alert.summary)} }}",
        ]
    return "\n".join(lines) + "\n"


def dashboard() -> str:
    made: dict[str, Any] = {
        "title": "Overlane",
        "uid": "overlane",
        "tags": ["overlane"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"}]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }
    return json.dumps(made, indent=1) + "\n"


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    row, column = divmod(number, COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [{"refId": "A", "datasource": source, "expr": panel.expression, "legendFormat": panel.legend}],
    }


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / RULES).write_text(rules())
    (FOLDER / DASHBOARD).write_text(dashboard())
    return 0


if __name__ == "__main__":
    sys.exit(main())
