"""Unsolicited messages: those that came over a route shared with brokers that have asked for them, and were dropped."""

from collections.abc import Iterable
from dataclasses import dataclass

from overlane.core.wire.parcel import Message


@dataclass(slots=True)
class Unsolicited:
    messages: int = 0
    size_bytes: int = 0
    """Of their bodies, as the overlay carries them."""

    def add(self, messages: Iterable[Message], count: int) -> None:
        """`count`: as publishers count them."""
        self.messages += count
        self.size_bytes += sum(len(body) for _, _, body in messages)
