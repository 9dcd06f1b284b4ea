"""Rates of flows that publishers of this broker advertise, beside what links have set aside for them."""

from collections.abc import Iterator
from dataclasses import dataclass

from overlane.core.units import SECOND, Nanos
from overlane.pubsub.reservations.advertising import AdvertisedFlow, Advertising
from overlane.telemetry.rows import ReservedFlow

EVERY: Nanos = 10 * SECOND


@dataclass(frozen=True, slots=True)
class _Seen:
    flow: AdvertisedFlow
    messages: int
    excess_messages: int
    payload_bytes: int
    link_bytes: int
    at_ns: Nanos


class FlowRates:
    def __init__(self, advertising: Advertising) -> None:
        self._advertising = advertising
        self._seen: dict[str, _Seen] = {}

    def rows(self, at_ns: Nanos, now: Nanos) -> Iterator[ReservedFlow]:
        """Of flows that are due: those that were seen first, or ten seconds ago. `now`: by a clock that is steady."""
        flows = self._advertising.flows
        for gone in self._seen.keys() - flows.keys():
            del self._seen[gone]
        for name, flow in flows.items():
            before = self._seen.get(name)
            if before is not None and before.flow is flow and now - before.at_ns < EVERY - SECOND // 2:
                continue
            meter = flow.meter
            seen = _Seen(flow, flow.messages, flow.excess_messages, meter.payload_bytes, flow.link_bytes, now)
            self._seen[name] = seen
            depths = meter.take_depths()
            if before is None or before.flow is not flow:
                continue  # nobody knows since when it counts
            yield ReservedFlow(
                at_ns,
                now - before.at_ns,
                name,
                round(flow.policer.tspec.rate),
                self._advertising.network.reserved_rate(name),
                len(flow.leaves),
                seen.messages - before.messages,
                seen.excess_messages - before.excess_messages,
                seen.payload_bytes - before.payload_bytes,
                seen.link_bytes - before.link_bytes,
                meter.size_max,
                tuple(round(rate) for rate in meter.rates),
                tuple(round(depth) for depth in depths),
            )
