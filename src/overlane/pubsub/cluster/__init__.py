"""Messages, retained messages and shared subscriptions across the brokers of one overlay."""

__all__ = ["arrivals", "border", "cluster", "envelope", "local_names", "names", "renaming", "uplink"]
