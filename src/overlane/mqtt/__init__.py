"""MQTT 3.1.1 and 5 as state machines: bytes and the time go in, bytes and effects come out. Nothing here does I/O."""

__all__ = ["arrival_counts", "codec", "connection", "handshake", "placing", "run_names", "runs", "server"]
