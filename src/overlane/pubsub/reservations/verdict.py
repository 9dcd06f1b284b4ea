"""What a subscriber is told: the class it got, or why it got none, and the nearest that it could have."""

from dataclasses import dataclass

from overlane.planning.reserve import Service


@dataclass(frozen=True, slots=True)
class ReservationVerdict:
    service: Service | None
    """None: refused."""
    rate: float | None = None
    """Bytes per second that are set aside."""
    bound_s: float | None = None
    reason: str = ""
    bottleneck: tuple[str, str] | None = None
    nearest_rate: float | None = None
    """Messages per second."""
    nearest_latency_s: float | None = None

    @property
    def is_granted(self) -> bool:
        return self.service is not None

    def properties(self) -> list[tuple[str, str]]:
        """As user properties of SUBACK, and as fields of what is told later."""
        found: list[tuple[str, str]] = []
        if self.service is not None:
            found.append(("overlane-class", self.service))
        if self.rate is not None:
            found.append(("overlane-reserved", f"{self.rate:.0f}"))
        if self.bound_s is not None:
            found.append(("overlane-bound", in_ms(self.bound_s)))
        if self.bottleneck is not None:
            found.append(("overlane-bottleneck", "-".join(self.bottleneck)))
        if self.nearest_rate is not None:
            found.append(("overlane-nearest-rate", f"{self.nearest_rate:.6g}"))
        if self.nearest_latency_s is not None:
            found.append(("overlane-nearest-latency", in_ms(self.nearest_latency_s)))
        return found


def in_ms(seconds: float) -> str:
    """In whole microseconds, and no less than it is: so it can be asked for."""
    return f"{-(-seconds * 1e6 // 1) / 1e3:g}ms"
