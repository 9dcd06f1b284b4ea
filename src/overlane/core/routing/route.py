"""A route of this source: what it is for, the links it takes now, and what was known when it was planned."""

from dataclasses import dataclass, field

from overlane.core.qos import QosClass
from overlane.core.requirements import Unmet
from overlane.core.routing.selection.route_plan import Links, RoutePlan
from overlane.core.routing.selection.route_quality import Quality
from overlane.core.units import NEVER, Nanos
from overlane.core.wire.control_messages import Advert, Establish

Adverts = tuple[Advert | None, ...]


@dataclass(slots=True)
class Route:
    """The route for one class and set of destinations; version 0: nothing decided yet."""

    id: int
    qos: QosClass
    destinations: tuple[str, ...]
    version: int = 0
    plan: RoutePlan = field(default_factory=lambda: RoutePlan(frozenset(), {}))
    cause: str = ""
    description: Establish | None = None
    described_ns: Nanos = -NEVER
    established: bool = False
    planned_ns: Nanos = -NEVER
    best_ns: dict[str, Nanos] = field(default_factory=dict)
    """The quickest there was when the route was last planned."""
    review_at: Nanos = NEVER
    failure: dict[tuple[str, str] | str, float] = field(default_factory=dict)
    """How likely its links and brokers were down, by what was known when it was last planned."""
    sample_at: Nanos = 0
    """When one of its parcels requests a confirmation again."""
    measured: tuple[Links, Adverts, dict[str, Nanos]] = frozenset(), (), {}
    """Its links, what their brokers said when its latency was last computed, and what that was."""
    unmet: tuple[Unmet, ...] = ()
    """Requirements of its class that it does not meet."""
    quality: Quality = field(default_factory=dict)
    """Where its class asks for quality."""
    told: tuple[Unmet, ...] = ()
    """What of it was reported."""

    @property
    def latency_ns(self) -> Nanos:
        """To the farthest destination."""
        return max(self.plan.latency_ns.values(), default=0)

    @property
    def slack_ns(self) -> Nanos:
        return self.qos.deadline_ns - self.latency_ns
