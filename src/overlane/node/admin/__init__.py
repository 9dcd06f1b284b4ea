"""The admin API of a broker: its server, its operations, and their views of the running broker."""

__all__: list[str] = []
