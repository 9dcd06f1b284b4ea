"""Route selection: which links a route takes, by the map, by risks and by what became of messages on it."""

__all__: list[str] = []
