"""Replication: the log of a primary, its mirrors, and what is durable when."""

__all__ = ["fragments", "frames", "stored_record"]
