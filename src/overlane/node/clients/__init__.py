"""Where clients connect: listeners, WebSocket, limits on connections."""
