"""Policies of publishers, offered and requested: liveliness, ownership, periods."""

__all__ = ["policy", "publishers"]
