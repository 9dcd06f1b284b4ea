"""Replication in a running broker: the driver of a replica, its disk, and connections between hosts."""

__all__: list[str] = []
