"""Routes that messages share: the mapping of topics to them, computed beside the event loop."""

__all__: list[str] = []
