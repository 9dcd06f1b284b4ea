"""QoS override: QoS that a client requests beyond the settings of the network file.

    overlane-deadline      "60ms"
    overlane-reliability   "reliable" or "best-effort"
    overlane-order         "strict" or "deadline"
    overlane-encrypted     "true"                         of a message only
    overlane-avoid         "broker:NAME,domain:NAME"      of a message only

as user properties of a message or a subscription. They can only tighten: an earlier deadline, reliable instead of best
effort, strict order for a topic with `order = "deadline"`.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from overlane.core.qos import DEADLINE_US_MAX, Order, QosClass, coarse_us
from overlane.core.requirements import BROKER_PREFIX, DOMAIN_PREFIX, Requirements
from overlane.core.requirements import NONE as NO_REQUIREMENTS
from overlane.core.units import NEVER, SECOND, US, Nanos
from overlane.errors import OverlaneError
from overlane.quantities import parse_duration

DEADLINE = "overlane-deadline"
RELIABILITY = "overlane-reliability"
ORDER = "overlane-order"
ENCRYPTED = "overlane-encrypted"
AVOID = "overlane-avoid"
AVOIDED_MAX = 8
REQUIRED_MAX = 64
"""Different requirements of publishers at a time; each makes classes of its own."""
PLACE = re.compile(rf"({BROKER_PREFIX}|{DOMAIN_PREFIX})[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}")
RELIABILITIES = {"reliable": True, "best-effort": False}
ORDERS = {Order.STRICT.value: True, Order.DEADLINE.value: False}

EXACT_MAX = 64
"""Different deadlines of clients that are used as they are."""
IDLE_MAX: Nanos = 60 * SECOND
"""A deadline that was not requested for this time may be replaced by another."""


class BadOverride(OverlaneError, ValueError):
    """A user property for QoS whose value has no meaning."""

    error_code = "OVL-113"


class QosOverride(NamedTuple):
    """A deadline, whether messages must be reliable, and whether their order must be strict. Of publishers alone: what
    is required of paths."""

    deadline_ns: Nanos = NEVER
    reliable: bool = False
    strict: bool = False
    requires: Requirements = NO_REQUIREMENTS


NONE = QosOverride()
RELIABLE = QosOverride(reliable=True)


def read_override(user_properties: Iterable[tuple[str, str]]) -> QosOverride:
    """Of several values the strictest."""
    deadline_ns, reliable, strict, requires = NONE
    for name, value in user_properties:
        if name == DEADLINE:
            deadline_ns = min(deadline_ns, _deadline(value))
        elif name == RELIABILITY:
            if value not in RELIABILITIES:
                raise BadOverride(f"{RELIABILITY}: {value[:40]!a} is neither reliable nor best-effort")
            reliable |= RELIABILITIES[value]
        elif name == ORDER:
            if value not in ORDERS:
                raise BadOverride(f"{ORDER}: {value[:40]!a} is neither strict nor deadline")
            strict |= ORDERS[value]
        elif name in (ENCRYPTED, AVOID):
            requires = requires.tightened(_requirement(name, value))
    return QosOverride(deadline_ns, reliable, strict, requires)


def apply_override(qos: QosClass, override: QosOverride) -> QosClass:
    """The class itself where the override asks for no more than it gives."""
    if override is NONE:
        return qos
    order = Order.STRICT if override.strict else qos.order
    requires = qos.requires if override.requires is NO_REQUIREMENTS else qos.requires.tightened(override.requires)
    if (
        override.deadline_ns >= qos.deadline_ns
        and override.reliable <= qos.reliable
        and order is qos.order
        and (requires is qos.requires or requires == qos.requires)
    ):
        return qos
    return replace(
        qos,
        deadline_ns=min(qos.deadline_ns, override.deadline_ns),
        reliable=qos.reliable or override.reliable,
        order=order,
        requires=requires,
    )


class Deadlines:
    """The different deadlines that clients ask for. Each makes a class of its own, with routes, queues and measurements
    in many brokers, so their number is bounded: beyond `EXACT_MAX` at a time they are rounded down to a few coarse
    ones."""

    def __init__(self) -> None:
        self._asked_ns: dict[Nanos, Nanos] = {}
        """Those that are used exactly, and when they were last asked for."""
        self._looked_ns: Nanos = -NEVER
        self._required_ns: dict[Requirements, Nanos] = {}

    def require(self, requires: Requirements, now: Nanos) -> None:
        """BadOverride if there are too many different requirements already: rounding them would not do."""
        if requires not in self._required_ns and len(self._required_ns) >= REQUIRED_MAX:
            self._required_ns = {one: at for one, at in self._required_ns.items() if now - at <= IDLE_MAX}
            if len(self._required_ns) >= REQUIRED_MAX:
                raise BadOverride(f"{AVOID}: publishers here have {REQUIRED_MAX} different requirements already")
        self._required_ns[requires] = now

    def settle(self, deadline_ns: Nanos, now: Nanos) -> Nanos:
        """The deadline to carry a message with, which is the one asked for or a little earlier."""
        if deadline_ns >= NEVER:
            return deadline_ns
        deadline_ns = max(US, deadline_ns)  # parcels carry microseconds, and 0 for none
        if deadline_ns in self._asked_ns or self._make_room(now):
            self._asked_ns[deadline_ns] = now
            return deadline_ns
        return coarse_us(min(DEADLINE_US_MAX, deadline_ns // US)) * US

    def _make_room(self, now: Nanos) -> bool:
        if len(self._asked_ns) >= EXACT_MAX and now - self._looked_ns >= SECOND:
            self._looked_ns = now
            self._asked_ns = {one: at for one, at in self._asked_ns.items() if now - at <= IDLE_MAX}
        return len(self._asked_ns) < EXACT_MAX


def _requirement(name: str, text: str) -> Requirements:
    if name == ENCRYPTED:
        if text != "true":
            raise BadOverride(f"{ENCRYPTED}: {text[:40]!a} is not true")
        return Requirements(encrypted=True)
    places = tuple(sorted({one.strip() for one in text.split(",")}))
    if len(places) > AVOIDED_MAX or not all(PLACE.fullmatch(one) for one in places):
        raise BadOverride(f"{AVOID}: {text[:40]!a} is no list of broker:NAME and domain:NAME, at most {AVOIDED_MAX}")
    return Requirements(avoid=places)


def _deadline(text: str) -> Nanos:
    try:
        deadline_ns = parse_duration(text)
    except ValueError:
        deadline_ns = 0
    if deadline_ns <= 0:
        raise BadOverride(f'{DEADLINE}: {text[:40]!a} is no duration such as "60ms"')
    return deadline_ns
