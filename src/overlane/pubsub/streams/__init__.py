"""Streams: durable logs of subscriptions, writers that publish each message once, and callbacks."""

__all__ = ["callbacks", "streams", "writers"]
