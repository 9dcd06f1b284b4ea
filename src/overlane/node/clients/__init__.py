"""Connections of clients: listeners, WebSocket, limits on connections."""

__all__: list[str] = []
