"""Messages end to end: what is published at this broker for others, and what arrives for its subscribers."""

__all__: list[str] = []
