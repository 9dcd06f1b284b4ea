"""Transformations of telemetry: load profiles, reliability, compliance, bottlenecks and interest."""
