"""Commands that publish and subscribe: `pub` and `sub`."""

__all__: list[str] = []
