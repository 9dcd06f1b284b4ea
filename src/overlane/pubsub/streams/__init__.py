"""Streams: durable logs of subscriptions, and writers that publish each message once."""

__all__ = ["streams", "writers"]
