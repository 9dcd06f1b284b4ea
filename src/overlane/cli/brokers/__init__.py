"""Commands that start, join, stop and watch brokers, and manage their users."""

__all__: list[str] = []
