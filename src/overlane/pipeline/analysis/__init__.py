"""Transformations of telemetry: load profiles, reliability, compliance, bottlenecks and interest."""

__all__ = ["health_alerts", "live_compliance"]
