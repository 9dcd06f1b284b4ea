"""Packets of MQTT 3.1.1 and 5: bytes to values, values to bytes, and the rules that both have to keep."""

__all__ = ["codec5", "codec311", "fields", "framing", "malformed", "writing"]
