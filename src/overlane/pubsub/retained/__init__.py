"""Retained messages, and their replay to new subscriptions."""

__all__: list[str] = []
