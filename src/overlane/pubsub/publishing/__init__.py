"""Publishing: a message of a client on its way into the broker, from its checks to delivery."""

__all__ = ["accepted", "backpressure", "message_ids", "mirrored", "publishing"]
