"""Latencies as the leader's strategies see them: from an edge to a routing broker, where it has been measured.

Nothing is copied until a strategy asks: with a thousand edges that would take longer than the rest of a decision.
"""

from collections.abc import Iterator, Mapping


class Latencies(Mapping[tuple[str, str], int]):
    """In microseconds, by edge and routing broker."""

    def __init__(self, by_edge: Mapping[str, Mapping[str, int]]) -> None:
        self._by_edge = by_edge
        self._by_broker: dict[str, dict[str, int]] = {}
        """Those that were asked for."""

    def to(self, broker: str) -> Mapping[str, int]:
        """By edge."""
        if (known := self._by_broker.get(broker)) is None:
            known = {edge: us[broker] for edge, us in self._by_edge.items() if broker in us}
            self._by_broker[broker] = known
        return known

    def __getitem__(self, key: tuple[str, str]) -> int:
        edge, broker = key
        return self._by_edge[edge][broker]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((edge, broker) for edge, us in self._by_edge.items() for broker in us)

    def __len__(self) -> int:
        return sum(map(len, self._by_edge.values()))
