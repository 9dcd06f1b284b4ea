"""Commands that play a network file: under virtual time, on real brokers of this machine, and as a demo."""

__all__: list[str] = []
