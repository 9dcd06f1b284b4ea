"""The command `overlane`: every capability, one word each."""

__all__ = ["start"]
