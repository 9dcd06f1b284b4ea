"""When a neighbour is dialled, at which address, and which of two connections stays."""

__all__: list[str] = []
