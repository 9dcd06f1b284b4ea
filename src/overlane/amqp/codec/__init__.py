"""AMQP 1.0 as bytes: types, frames, performatives and message sections, with their limits. Nothing here has a state."""

__all__ = ["composites", "decoding", "encoding", "framing", "malformed", "performatives", "transfers", "types"]
