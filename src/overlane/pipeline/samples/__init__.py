"""Telemetry that is made up with a known truth, and telemetry from round-trip histories."""

__all__ = ["rtt", "sample"]
