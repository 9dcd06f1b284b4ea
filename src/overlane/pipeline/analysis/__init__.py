"""Transformations of telemetry: load profiles, reliability, compliance, bottlenecks and interest."""

__all__ = ["live_compliance"]
