"""Sessions: the state of a client between its connections, and its will."""

__all__ = ["deduplication", "domain", "lookup", "registry", "reserved_names", "session", "wills"]
