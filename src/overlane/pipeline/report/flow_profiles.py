"""Proposals for the profiles of advertised flows, from the table `reserved_flows`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

IDLE_SHARE = 0.5
"""Of a reservation: who uses less has more set aside than is needed."""
LOWER, RAISE, KEEP, NOTHING = "lower", "raise", "keep", "no traffic"
FLOW_COLUMNS = ("flow", "broker", "advertised", "reserved", "used", "of it", "beyond the profile", "proposed", "advice")


@dataclass(frozen=True, slots=True)
class FlowProfile:
    """Rates are bytes per second as links count them; the proposed bucket is of payloads."""

    filter: str
    broker: str
    advertised: int
    reserved: float
    used: float
    share: float | None
    messages: int
    excess_messages: int
    size_max: int
    rate: int | None
    bucket: int | None

    @property
    def advice(self) -> str:
        if self.rate is None:
            return NOTHING
        if self.excess_messages > 0.001 * self.messages:
            return RAISE
        return LOWER if self.rate < IDLE_SHARE * self.advertised else KEEP

    def document(self) -> dict[str, Any] | None:
        """What to publish on `$overlane/advertise/TOPIC`; None without traffic."""
        if self.rate is None or self.bucket is None:
            return None
        bucket = {"r": self.rate, "b": max(self.bucket, self.size_max)}
        named = {"filter": self.filter} if any(wild in self.filter for wild in "+#") else {}
        return {**named, "size_min": 1, "size_max": self.size_max, "token_bucket": bucket}

    def topic(self) -> str:
        """Where the document goes: a topic has no wildcards."""
        return "$overlane/advertise/" + self.filter.replace("+", "_").replace("#", "_")

    def cells(self) -> tuple[str, ...]:
        share = "-" if self.share is None else f"{self.share:.0%}"
        proposed = "-" if self.rate is None else f"{self.rate:,} B/s, {self.bucket:,} B"
        excess = f"{self.excess_messages:,} of {self.messages:,}"
        rates = (f"{rate:,.0f} B/s" for rate in (self.advertised, self.reserved, self.used))
        return self.filter, self.broker, *rates, share, excess, proposed, self.advice

    def command(self) -> str:
        return f"mosquitto_pub -r -t '{self.topic()}' -m '{json.dumps(self.document())}'"


def proposals(rows: Iterable[Mapping[str, Any]]) -> list[FlowProfile]:
    """Those with the most that is set aside and not used first."""
    names = FlowProfile.__slots__
    found = [FlowProfile(**{name: row[name] for name in names}) for row in rows]
    return sorted(found, key=lambda one: (one.used - one.reserved, one.filter, one.broker))
