"""Where a trial takes place: how brokers are run, reached, and kept apart.

The loopback is one, a wide area another.
"""

from collections.abc import Sequence
from typing import Protocol

from overlane.core.units import Nanos
from overlane.network import Network


class Ground(Protocol):
    @property
    def network(self) -> Network:
        """As its brokers read it: with the addresses they have here."""
        ...

    @property
    def broker_options(self) -> Sequence[str]: ...

    def open(self) -> None:
        """Unavailable if it cannot be made here."""
        ...

    def close(self) -> None: ...

    def command(self, broker: str, argv: Sequence[str]) -> list[str]:
        """What to execute to run `argv` where that broker is."""
        ...

    def ask(self, broker: str, method: str, path: str) -> bytes:
        """Of its admin API; Unavailable if it does not answer well."""
        ...

    def slow(self, one: str, other: str, latency_ns: Nanos) -> None: ...
    def lose(self, one: str, other: str, loss: float) -> None: ...
    def cut(self, one: str, other: str) -> None: ...
    def heal(self, one: str, other: str) -> None: ...
    def unplug(self, broker: str, uplink: str) -> None: ...
    def plug(self, broker: str, uplink: str) -> None: ...
