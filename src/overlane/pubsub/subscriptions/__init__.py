"""Subscriptions: which sessions receive a topic."""

__all__ = ["subscribing", "table"]
