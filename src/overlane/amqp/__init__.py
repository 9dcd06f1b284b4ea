"""AMQP 1.0 as state machines: bytes and the time go in, bytes and effects come out. Nothing here does I/O."""

__all__ = ["client", "codec", "connection", "messages", "server"]
