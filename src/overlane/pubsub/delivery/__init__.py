"""From a message to the sessions that receive it: queues, acknowledgements, dead letters."""

__all__ = ["confirmations", "delivery", "returns", "window"]
