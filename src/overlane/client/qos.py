"""What an application asks of a topic: how surely, and how soon.

MQTT's level says how a message crosses the line between client and broker. Deadline and reliability say how it
crosses the overlay; they travel as MQTT 5 user properties and can only tighten what the brokers' configuration says
of the topic:

    overlane-deadline       "60ms"
    overlane-reliability    "reliable" | "best-effort"
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache

from overlane.client.errors import InvalidRequest
from overlane.core.units import Nanos
from overlane.network.units import parse_duration

DEADLINE_PROPERTY = "overlane-deadline"
RELIABILITY_PROPERTY = "overlane-reliability"


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


@dataclass(frozen=True, slots=True)
class TopicQos:
    """Deadline, reliability and level together, to be defined once and given to many calls as `qos=`.

    >>> ALARMS = TopicQos(deadline="60ms", reliability="reliable")

    `level` is `AT_LEAST_ONCE` for what is reliable and `AT_MOST_ONCE` otherwise, unless given.
    """

    deadline: str | None = None
    reliability: Reliability | str | None = None
    level: Qos | int | None = None

    def __post_init__(self) -> None:
        if self.deadline is not None and duration_ns(self.deadline, "deadline") <= 0:
            raise InvalidRequest(f"deadline {self.deadline}: it must be above 0")
        if self.reliability is not None:
            _reliability(self.reliability)
        _level(self.level or 0)

    @property
    def mqtt_level(self) -> Qos:
        """The level between client and broker, given or derived."""
        if self.level is not None:
            return Qos(self.level)
        return Qos.AT_LEAST_ONCE if self.reliability == Reliability.RELIABLE else Qos.AT_MOST_ONCE

    @property
    def properties(self) -> tuple[tuple[str, str], ...]:
        """The user properties that carry deadline and reliability to the broker."""
        pairs = ((DEADLINE_PROPERTY, self.deadline), (RELIABILITY_PROPERTY, self.reliability))
        return tuple((name, str(value)) for name, value in pairs if value is not None)


@lru_cache(1024)
def chosen(
    qos: TopicQos | Qos | int | None, deadline: str | None, reliability: Reliability | str | None
) -> tuple[Qos, tuple[tuple[str, str], ...]]:
    """The level and user properties of one call: what it says itself goes before what its `TopicQos` says."""
    base = qos if isinstance(qos, TopicQos) else TopicQos(level=qos)
    whole = TopicQos(deadline or base.deadline, reliability or base.reliability, base.level)
    return whole.mqtt_level, whole.properties


def duration_ns(text: str, what: str) -> Nanos:
    """A duration as people write it; `what` names it where it is wrong."""
    try:
        return parse_duration(text)
    except (ValueError, TypeError) as reason:
        raise InvalidRequest(f'{what} {text!r}: {reason}, allowed is a duration such as "60ms" or "1.5s"') from None


def duration_s(text: str, what: str) -> int:
    """A duration as MQTT counts it: whole seconds, rounded up."""
    duration = duration_ns(text, what)
    if duration < 0:
        raise InvalidRequest(f"{what} {text}: it must not be below 0")
    return -(-duration // 1_000_000_000)


def _level(level: Qos | int) -> Qos:
    try:
        return Qos(level)
    except ValueError:
        raise InvalidRequest(f"qos {level!r}: allowed are 0, 1 and 2") from None


def _reliability(text: str) -> Reliability:
    try:
        return Reliability(text)
    except ValueError:
        raise InvalidRequest(f'reliability {text!r}: allowed are "reliable" and "best-effort"') from None
