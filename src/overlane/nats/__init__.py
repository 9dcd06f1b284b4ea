"""Core NATS as a state machine: bytes and the time go in, bytes and effects come out. Nothing here does I/O."""

__all__ = ["connection", "server", "subjects"]
