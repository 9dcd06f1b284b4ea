"""Logs: lines, and the events of clients and of the overlay as lines."""

__all__ = ["lines"]
