"""Subscriptions: which sessions receive a topic."""

__all__ = ["content_filters", "subscribing", "table"]
