"""The state of a gateway as it publishes it: which sides are connected since when, and what has crossed; pure.

Whoever has the time hands it in: seconds since 1970, since others read it.
"""

from dataclasses import dataclass, field

from overlane.adminapi.views import GatewayView, LaneView, SideView
from overlane.gateways.lane import GatewayLane
from overlane.network.schema import Gateway

UP, CONNECTING, DOWN = "up", "connecting", "down"
RATE_OVER_S = 5.0


@dataclass(slots=True)
class SideState:
    is_connected: bool = False
    since: float = 0.0
    last_error: str = ""

    def turn(self, is_connected: bool, now_s: float, reason: str = "") -> None:
        if is_connected != self.is_connected or not self.since:
            self.is_connected, self.since = is_connected, now_s
        if reason:
            self.last_error = reason

    def view(self) -> SideView:
        return SideView(is_connected=self.is_connected, since=self.since, last_error=self.last_error)


@dataclass(slots=True)
class LaneRate:
    """Messages a second over the last seconds."""

    _before: int = 0
    _before_s: float = 0.0
    per_second: float = 0.0

    def measure(self, passed: int, now_s: float) -> None:
        if not self._before_s:
            self._before, self._before_s = passed, now_s
        elif now_s - self._before_s >= RATE_OVER_S:
            self.per_second = (passed - self._before) / (now_s - self._before_s)
            self._before, self._before_s = passed, now_s


@dataclass(slots=True)
class GatewayState:
    gateway: Gateway
    overlay: SideState = field(default_factory=SideState)
    foreign: SideState = field(default_factory=SideState)
    kept: dict[str, int | None] = field(default_factory=dict)
    """Messages that the brokers still keep, by the direction."""
    _rates: dict[str, LaneRate] = field(default_factory=lambda: {"inwards": LaneRate(), "outwards": LaneRate()})

    @property
    def word(self) -> str:
        return UP if self.overlay.is_connected and self.foreign.is_connected else CONNECTING

    def view(self, inwards: GatewayLane, outwards: GatewayLane, now_s: float) -> GatewayView:
        since = max(self.overlay.since, self.foreign.since)
        return GatewayView(
            name=self.gateway.name,
            broker=self.gateway.broker,
            to=self.gateway.to,
            state=self.word,
            since=since,
            updated=now_s,
            overlay=self.overlay.view(),
            foreign=self.foreign.view(),
            inwards=self._lane(inwards, "inwards", now_s),
            outwards=self._lane(outwards, "outwards", now_s),
            last_error=inwards.last_error or outwards.last_error or self.foreign.last_error or self.overlay.last_error,
        )

    def ended(self, now_s: float, reason: str) -> GatewayView:
        """For the time when it does not run."""
        gateway = self.gateway
        return GatewayView(
            name=gateway.name, broker=gateway.broker, to=gateway.to, since=now_s, updated=now_s, last_error=reason
        )

    def _lane(self, lane: GatewayLane, direction: str, now_s: float) -> LaneView:
        counts, rate = lane.counts, self._rates[direction]
        rate.measure(counts.passed, now_s)
        return LaneView(
            passed=counts.passed,
            per_second=round(rate.per_second, 1),
            waiting=lane.waiting,
            backlog=self.kept.get(direction),
            is_metered=lane.is_metered and lane.waiting > 0,
            looped=counts.looped,
            unnamed=counts.unnamed,
            refused=counts.refused,
            dropped=counts.dropped,
        )
