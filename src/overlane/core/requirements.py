"""Requirements: what a QoS class asks of the paths of its messages, beyond a deadline.

Trust decides which links and brokers a path may have; a path without it is never used:

    encrypted        every link is encrypted
    through          every broker between the source and a destination is one of these
    avoid            no broker that gets the messages from another one is one of these

Brokers are named as "broker:NAME" and "domain:NAME". A broker without a domain is a domain of its own. Of a broker that
the configuration does not name, nobody knows the domain: it counts as part of every domain that is to be avoided.

Quality is a matter of degree. Routes that do not reach it are used, and that is reported:

    loss_max         the most of the messages that may be lost on the links, as these measure it, before repair
    resiliency_min   how likely at least one path is up, by how often its links and brokers fail
"""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import NamedTuple

ENCRYPTED = "encrypted"
THROUGH = "through"
AVOID = "avoid"
LOSS_MAX = "loss_max"
RESILIENCY_MIN = "resiliency_min"

BROKER_PREFIX = "broker:"
DOMAIN_PREFIX = "domain:"
PLACES_MAX = 64
"""Brokers and domains in one list."""


@dataclass(frozen=True, slots=True, order=True)
class Requirements:
    encrypted: bool = False
    through: tuple[str, ...] = ()
    """Empty: any broker."""
    avoid: tuple[str, ...] = ()
    loss_max: float = 1.0
    resiliency_min: float = 0.0

    @property
    def is_trust(self) -> bool:
        """Whether there are links or brokers that must not be used."""
        return self.encrypted or bool(self.through or self.avoid)

    @property
    def is_quality(self) -> bool:
        return self.loss_max < 1.0 or self.resiliency_min > 0.0

    def tightened(self, other: "Requirements") -> "Requirements":
        """What both ask for. Of two lists of brokers to go through, what is in both; in doubt nothing is."""
        return Requirements(
            self.encrypted or other.encrypted,
            _both(self.through, other.through),
            tuple(sorted({*self.avoid, *other.avoid})),
            min(self.loss_max, other.loss_max),
            max(self.resiliency_min, other.resiliency_min),
        )

    def without(self, name: str) -> "Requirements":
        """All of it but one part of trust."""
        return Requirements(
            self.encrypted and name != ENCRYPTED,
            () if name == THROUGH else self.through,
            () if name == AVOID else self.avoid,
            self.loss_max,
            self.resiliency_min,
        )

    def trust_alone(self) -> "Requirements":
        return Requirements(self.encrypted, self.through, self.avoid)

    def trust_names(self) -> tuple[str, ...]:
        asked = ((ENCRYPTED, self.encrypted), (THROUGH, self.through), (AVOID, self.avoid))
        return tuple(name for name, value in asked if value)


NONE = Requirements()
NOBODY = "broker:"
"""A place that no broker is in."""


def _both(mine: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    if not mine or not theirs:
        return mine or theirs
    return tuple(sorted({*mine} & {*theirs})) or (NOBODY,)


StoredRequirements = tuple[bool, tuple[str, ...], tuple[str, ...], float, float] | None
"""As records have them; None where there are none."""


def stored_requirements(requires: Requirements) -> StoredRequirements:
    return None if requires == NONE else astuple(requires)


def read_requirements(stored: StoredRequirements) -> Requirements:
    return NONE if stored is None else Requirements(*stored)


class Unmet(NamedTuple):
    """A requirement that the route to a destination does not meet, or that leaves no route to it."""

    destination: str
    requirement: str
    wanted: float = 0.0
    found: float = 0.0
    """Of quality: what was asked for, and what the route has."""

    @property
    def is_trust(self) -> bool:
        """Whether nothing is sent there for it."""
        return self.requirement in (ENCRYPTED, THROUGH, AVOID)

    def __str__(self) -> str:
        if self.requirement == ENCRYPTED:
            return "no path of encrypted links"
        if self.is_trust:
            return f"no path that {self.requirement!r} allows"
        bound = "at most" if self.requirement == LOSS_MAX else "at least"
        kind = "loss" if self.requirement == LOSS_MAX else "resiliency"
        return f"{kind} {self.found:.4g}; {self.requirement} asks for {bound} {self.wanted:g}"


@dataclass(frozen=True, slots=True)
class Places:
    """The brokers of the configuration, and their domains."""

    domains: Mapping[str, str] = field(default_factory=dict)
    """By broker; empty for one that is a domain of its own."""

    def names(self, broker: str) -> tuple[str, ...]:
        """How requirements may name a broker."""
        domain = self.domains.get(broker)
        own = BROKER_PREFIX + broker
        return (own,) if domain is None else (own, DOMAIN_PREFIX + (domain or broker))

    def is_in(self, broker: str, places: Iterable[str]) -> bool:
        return not {*self.names(broker)}.isdisjoint(places)

    def may_receive(self, broker: str, requires: Requirements) -> bool:
        """Whether messages may be sent to a broker at all."""
        if not requires.avoid:
            return True
        if broker not in self.domains and any(place.startswith(DOMAIN_PREFIX) for place in requires.avoid):
            return False
        return not self.is_in(broker, requires.avoid)

    def may_pass(self, broker: str, requires: Requirements) -> bool:
        """Whether a broker may pass messages on."""
        return self.may_receive(broker, requires) and (not requires.through or self.is_in(broker, requires.through))
