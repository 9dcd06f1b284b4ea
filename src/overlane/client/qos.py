"""Quality of service that an application requests for a topic.

The MQTT level applies between client and broker. Deadline, reliability and order apply across the overlay; they are
sent as MQTT 5 user properties, and can only tighten the settings of the network file:

    overlane-deadline       "60ms"
    overlane-reliability    "reliable" | "best-effort"
    overlane-order          "strict" | "deadline"
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache

from overlane.client.errors import InvalidRequest
from overlane.core.units import Nanos
from overlane.quantities import parse_duration

DEADLINE_PROPERTY = "overlane-deadline"
RELIABILITY_PROPERTY = "overlane-reliability"
ORDER_PROPERTY = "overlane-order"


class Qos(IntEnum):
    """MQTT's quality of service between a client and its broker."""

    AT_MOST_ONCE = 0
    """Sent once and not acknowledged; lost with the connection."""
    AT_LEAST_ONCE = 1
    """Acknowledged; sent again after a lost connection, so it may come twice, unless the broker is one of Overlane."""
    EXACTLY_ONCE = 2
    """Acknowledged in two steps; comes once as long as the session lives."""


class Reliability(StrEnum):
    """Whether the overlay may lose a message on its way between brokers."""

    RELIABLE = "reliable"
    """Kept at its source until every broker that needs it has it."""
    BEST_EFFORT = "best-effort"
    """Sent with as much redundancy as the deadline needs, and not kept."""


class Order(StrEnum):
    """What counts more for reliable messages, where not both can be had."""

    STRICT = "strict"
    """The order of each publisher's messages on a topic: a later one waits for an earlier one. The default."""
    DEADLINE = "deadline"
    """The deadline: a later message does not wait for an earlier one beyond it."""


@dataclass(frozen=True, slots=True)
class TopicQos:
    """Deadline, reliability, order and level together, to be defined once and given to many calls as `qos=`.

    >>> ALARMS = TopicQos(deadline="60ms", reliability="reliable")

    `level` is `AT_LEAST_ONCE` for what is reliable and `AT_MOST_ONCE` otherwise, unless given. `order` says `"strict"`
    where the brokers' configuration lets a topic choose its deadline over its order, and this client does not.
    """

    deadline: str | None = None
    reliability: Reliability | str | None = None
    level: Qos | int | None = None
    order: Order | str | None = None

    def __post_init__(self) -> None:
        if self.deadline is not None and duration_ns(self.deadline, "deadline") <= 0:
            raise InvalidRequest(f"got deadline={self.deadline}; expected a value above 0")
        if self.reliability is not None:
            _reliability(self.reliability)
        if self.order is not None:
            _order(self.order)
        _level(self.level or 0)

    @property
    def mqtt_level(self) -> Qos:
        """The level between client and broker, given or derived."""
        if self.level is not None:
            return Qos(self.level)
        return Qos.AT_LEAST_ONCE if self.reliability == Reliability.RELIABLE else Qos.AT_MOST_ONCE

    @property
    def properties(self) -> tuple[tuple[str, str], ...]:
        """The user properties that carry deadline, reliability and order to the broker."""
        pairs = (
            (DEADLINE_PROPERTY, self.deadline),
            (RELIABILITY_PROPERTY, self.reliability),
            (ORDER_PROPERTY, self.order),
        )
        return tuple((name, str(value)) for name, value in pairs if value is not None)


@lru_cache(1024)
def chosen(
    qos: TopicQos | Qos | int | None, deadline: str | None, reliability: Reliability | str | None
) -> tuple[Qos, tuple[tuple[str, str], ...]]:
    """The level and user properties of one call: its own arguments override its `TopicQos`."""
    base = qos if isinstance(qos, TopicQos) else TopicQos(level=qos)
    whole = TopicQos(deadline or base.deadline, reliability or base.reliability, base.level, base.order)
    return whole.mqtt_level, whole.properties


def duration_ns(text: str, what: str) -> Nanos:
    """A duration as people write it; `what` names it where it is wrong."""
    try:
        return parse_duration(text)
    except (ValueError, TypeError) as reason:
        raise InvalidRequest(f'got {what}={text!r} ({reason}); expected a duration such as "60ms" or "1.5s"') from None


def duration_s(text: str, what: str) -> int:
    """A duration as MQTT counts it: whole seconds, rounded up."""
    duration = duration_ns(text, what)
    if duration < 0:
        raise InvalidRequest(f"got {what}={text}; expected 0 or more")
    return -(-duration // 1_000_000_000)


def _level(level: Qos | int) -> Qos:
    try:
        return Qos(level)
    except ValueError:
        raise InvalidRequest(f"got qos={level!r}; expected 0, 1 or 2") from None


def _order(text: str) -> Order:
    try:
        return Order(text)
    except ValueError:
        raise InvalidRequest(f'got order={text!r}; expected "strict" or "deadline"') from None


def _reliability(text: str) -> Reliability:
    try:
        return Reliability(text)
    except ValueError:
        raise InvalidRequest(f'got reliability={text!r}; expected "reliable" or "best-effort"') from None
