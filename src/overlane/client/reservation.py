"""Reservations: the traffic that a publisher advertises, and the rate and latency that a subscriber asks for.

They are a JSON document on `$overlane/advertise/FILTER`, and MQTT 5 user properties of a subscription.
"""

import json
from dataclasses import dataclass

from overlane.client.errors import InvalidRequest
from overlane.client.qos import duration_ns

ADVERTISE = "$overlane/advertise/"
CLASSES = ("best-effort", "controlled-load", "guaranteed")
STYLES = ("SE", "FF", "WF")
EXCESSES = ("best-effort", "wait", "drop")


@dataclass(frozen=True, slots=True)
class Traffic:
    """What messages there are: their size, and one kind of rate.

    >>> VIDEO = Traffic(size=1000, period="10ms")
    >>> MIXED = Traffic(size=(200, 1000), rate=(100, 200))

    `size` is in bytes, one or the smallest and the largest; `rate` is messages per second, on average, or on average
    and at most; `period` a duration; `token_bucket` r and b, or r, b and p, in bytes and bytes per second.
    """

    size: int | tuple[int, int]
    rate: float | tuple[float, float] | None = None
    period: str | None = None
    token_bucket: tuple[float, float] | tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        given = [one for one in (self.rate, self.period, self.token_bucket) if one is not None]
        if len(given) != 1:
            raise InvalidRequest(f"got {len(given)} kinds of rate; expected one of rate, period and token_bucket")
        if self.period is not None and duration_ns(self.period, "period") <= 0:
            raise InvalidRequest(f"got period={self.period}; expected a value above 0")

    def document(self, topic_filter: str, excess: str) -> bytes:
        """As the broker reads it."""
        if excess not in EXCESSES:
            raise InvalidRequest(f"got excess={excess!r}; expected one of {', '.join(EXCESSES)}")
        found: dict[str, object] = {"filter": topic_filter, "excess": excess}
        if isinstance(self.size, tuple):
            found |= {"size_min": self.size[0], "size_max": self.size[1]}
        else:
            found["size"] = self.size
        if isinstance(self.rate, tuple):
            found |= {"rate_avg": self.rate[0], "rate_max": self.rate[1]}
        elif self.rate is not None:
            found["rate_avg"] = self.rate
        if self.period is not None:
            found["period_s"] = duration_ns(self.period, "period") / 1e9
        if self.token_bucket is not None:
            found["token_bucket"] = dict(zip("rbp", self.token_bucket, strict=False))
        return json.dumps(found).encode()

    def properties(self) -> tuple[tuple[str, str], ...]:
        """The user properties of a subscription that say the same."""
        found = [("overlane-size", _range(self.size))]
        if self.rate is not None:
            found.append(("overlane-rate", _range(self.rate)))
        if self.period is not None:
            found.append(("overlane-period", self.period))
        if self.token_bucket is not None:
            found.append(("overlane-token-bucket", " ".join(map(str, self.token_bucket))))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Reserve:
    """What a subscriber asks for, given to `subscribe(reserve=...)`. With a latency the service is guaranteed.

    >>> Reserve(Traffic(size=1000, period="10ms"), latency="60ms", class_min="best-effort")

    `class_min` is the least class that is accepted. The subscription is refused if it cannot be had; the exception says
    why, and names the nearest that could be.
    """

    traffic: Traffic
    latency: str | None = None
    class_min: str | None = None
    style: str | None = None

    def __post_init__(self) -> None:
        if self.latency is not None and duration_ns(self.latency, "latency") <= 0:
            raise InvalidRequest(f"got latency={self.latency}; expected a value above 0")
        if self.class_min is not None and self.class_min not in CLASSES:
            raise InvalidRequest(f"got class_min={self.class_min!r}; expected one of {', '.join(CLASSES)}")
        if self.style is not None and self.style not in STYLES:
            raise InvalidRequest(f"got style={self.style!r}; expected one of {', '.join(STYLES)}")

    @property
    def properties(self) -> tuple[tuple[str, str], ...]:
        """The user properties that carry it to the broker."""
        more = (
            ("overlane-latency", self.latency),
            ("overlane-class-min", self.class_min),
            ("overlane-style", self.style),
        )
        return (*self.traffic.properties(), *((name, value) for name, value in more if value is not None))


def name_of(topic_filter: str) -> str:
    """What a document about a filter is called: a topic has no wildcards."""
    return topic_filter.replace("+", "%2B").replace("#", "%23")


def _range(value: float | tuple[float, float]) -> str:
    return "..".join(map(str, value)) if isinstance(value, tuple) else str(value)
