"""Datagrams beside the connection of a link: their bytes, sockets, and what is in transit."""

__all__: list[str] = []
