"""Signalling: how routes get into the brokers that carry them, and stay there."""

__all__: list[str] = []
