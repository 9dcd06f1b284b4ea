"""The connection of a link: how much is sent at once, and its move to another path."""

__all__: list[str] = []
