"""The network that makes reservations, as the service sees it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from overlane.core.units import Nanos
from overlane.planning.reserve import TSpec


@dataclass(frozen=True, slots=True)
class Granted:
    """Every link of the path has set the rate aside. It may come again, after `Interrupted`."""

    request: str
    rate: float
    """Bytes per second."""
    bound_s: float | None


@dataclass(frozen=True, slots=True)
class Denied:
    """The request is forgotten."""

    request: str
    reason: str
    bottleneck: tuple[str, str] | None = None
    nearest_rate: float | None = None
    """Bytes per second."""
    nearest_latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Its path is lost, and another one is sought: `Granted` or `Denied` follows."""

    request: str


ReservationOutcome = Granted | Denied | Interrupted
Listener = Callable[[ReservationOutcome, Nanos], None]


class ReservationNetwork(Protocol):
    """Outcomes may come while `ask` is still called."""

    listener: Listener

    def offer(self, topic_filter: str, tspec: TSpec, leaves: frozenset[str], now: Nanos) -> int:
        """Publishers here announce this traffic, for these brokers; the number of the flow."""

    def withdraw(self, topic_filter: str, now: Nanos) -> None: ...

    def ask(
        self, request: str, topic_filter: str, tspec: TSpec, latency_s: float | None, style: str, now: Nanos
    ) -> None: ...

    def release(self, request: str, now: Nanos) -> None: ...

    def reserved_rate(self, topic_filter: str) -> int:
        """Bytes per second that the links of this broker have set aside for the flow: the most of them."""

    def watch_delay(self, topic_filter: str, bound_s: float | None) -> None:
        """Measure the delay of what was granted, against its bound."""


class NoNetwork:
    """There are no other brokers: nothing is asked of them."""

    listener: Listener = staticmethod(lambda _outcome, _now: None)

    def offer(self, topic_filter: str, tspec: TSpec, leaves: frozenset[str], now: Nanos) -> int:  # noqa: ARG002
        return 0

    def withdraw(self, topic_filter: str, now: Nanos) -> None:
        pass

    def ask(
        self, request: str, topic_filter: str, tspec: TSpec, latency_s: float | None, style: str, now: Nanos
    ) -> None:
        pass

    def release(self, request: str, now: Nanos) -> None:
        pass

    def reserved_rate(self, topic_filter: str) -> int:  # noqa: ARG002
        return 0

    def watch_delay(self, topic_filter: str, bound_s: float | None) -> None:
        pass
