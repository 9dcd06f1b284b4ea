"""Days of an overlay from its telemetry, as a recording that the page replays.

One state per step. Brokers and links are as they recorded themselves: a broker that recorded nothing in a step is lost,
unless it said that it stops. Of routes there are events, of which the last one counts. What nobody records, such as
messages that were lost on their way, is not shown.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from overlane.adminapi.topic_filters import TopicFilters
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.monitor.history import ITEMS_MAX, TARGET, Head
from overlane.monitor.observer import OTHER_TOPICS
from overlane.monitor.overlay_state import (
    PATHS_SHOWN,
    BrokerStatus,
    Figures,
    Link,
    LinkDirection,
    OverlayDelta,
    OverlayState,
    Route,
    Topic,
    link_name,
    rounded,
    state_delta,
    worse,
)
from overlane.monitor.timeline import Timeline
from overlane.network import Network
from overlane.telemetry.lake_history import (
    BrokerStep,
    LakeHistory,
    LinkStep,
    TopicStep,
    age_ns,
    last_row_ns,
    read_history,
)

STEPS_MAX, STEPS_MIN = 1_440, 120
STEP_MIN: Nanos = 10 * SECOND


@dataclass(frozen=True, slots=True)
class Period:
    from_ns: Nanos
    until_ns: Nanos
    step_ns: Nanos

    @property
    def steps(self) -> int:
        return math.ceil((self.until_ns - self.from_ns) / self.step_ns)


def period_of(network: Network, until_ns: Nanos, length_ns: Nanos) -> Period:
    """The steps of a period: fewer where each of them has much to show."""
    items = len(network.brokers) + len(network.links) + len(network.topics) + 1
    steps = max(STEPS_MIN, min(STEPS_MAX, ITEMS_MAX // items))
    step_ns = max(STEP_MIN, math.ceil(length_ns / steps / SECOND) * SECOND)
    until_ns = math.ceil(until_ns / step_ns) * step_ns
    return Period(until_ns - math.ceil(length_ns / step_ns) * step_ns, until_ns, step_ns)


def rows_of(network: Network) -> Callable[[str], str]:
    """The filter of the file that a topic is counted under."""
    filters = TopicFilters(network)
    return lambda topic: filters.of(topic) or OTHER_TOPICS


def past_of(network: Network, title: str, lake: str, length_ns: Nanos) -> tuple[Head, list[OverlayDelta]]:
    """The latest part of a lake, so long. Unavailable if it cannot be read, or nothing is in it."""
    period = period_of(network, last_row_ns(lake), length_ns)
    found = read_history(lake, period.from_ns, period.until_ns, period.step_ns, rows_of(network))
    return replay(network, found, period, f"{title}, telemetry")


def replay(network: Network, found: LakeHistory, period: Period, title: str) -> tuple[Head, list[OverlayDelta]]:
    """The recording of a period."""
    player = _Player(network, found, period)
    states = player.states()
    first, happened = next(states)
    changes, before = [OverlayDelta(at_s=first.at_s, happenings=happened)], first
    for state, happened in states:
        changes.append(state_delta(before, state, happened))
        before = state
    head = Head(
        title=title,
        is_live=False,
        began_ms=period.from_ns // MS,
        target=TARGET,
        until_s=before.at_s,
        step_s=period.step_ns / SECOND,
        picture=first,
    )
    return head, changes


class _Player:
    def __init__(self, network: Network, found: LakeHistory, period: Period) -> None:
        self._network, self._found, self._period = network, found, period
        self._places = {broker.name: broker for broker in network.brokers}
        self._pairs = {link_name(*link.ends): (min(link.ends), max(link.ends)) for link in network.links}
        self._names = sorted(self._places.keys() | {name for one in found.brokers.values() for name in one})
        self._timeline = Timeline()
        self._events = iter(found.events)
        self._next = next(self._events, None)
        self._routes: dict[str, Route] = {}
        self._totals: dict[str, TopicStep] = {topic.filter: TopicStep() for topic in network.topics}
        self._present: set[str] = set()
        """Brokers that recorded something in the step before."""
        self._known: set[str] = set()
        self._stopped: set[str] = set()
        self._started: set[str] = set()
        """In this step."""

    def states(self) -> "Iterator[tuple[OverlayState, tuple[Any, ...]]]":
        """By step, with what happened in it."""
        for step in range(self._period.steps):
            end_ns = self._period.from_ns + (step + 1) * self._period.step_ns
            at_s = self._seconds(end_ns)
            while self._next is not None and self._next["at_ns"] < end_ns:
                self._happened(self._next)
                self._next = next(self._events, None)
            brokers = self._brokers(self._found.brokers.get(step, {}), at_s)
            links = self._links(self._found.links.get(step, {}))
            topics = self._topics(self._found.topics.get(step, {}))
            self._timeline.measured(at_s, links)
            state = OverlayState(at_s=at_s, brokers=brokers, links=links, routes=dict(self._routes), topics=topics)
            yield state, self._timeline.take()

    def _seconds(self, at_ns: Nanos) -> float:
        return round((at_ns - self._period.from_ns) / SECOND, 3)

    # Events

    def _happened(self, row: Mapping[str, Any]) -> None:
        at_s, name = self._seconds(row["at_ns"]), row["broker"]
        match row["kind"]:
            case "broker-started":
                self._stopped.discard(name)
                self._started.add(name)
                self._timeline.broker(at_s, "good", name, "has started")
            case "broker-stopped":
                self._stopped.add(name)
                self._timeline.broker(at_s, "warning", name, "has stopped")
            case "link":
                self._timeline.link(at_s, name, row["peer"], row["state"])
            case "route":
                self._route(at_s, row)
            case "deadline-unmeetable":
                self._timeline.deadline(at_s, name, row["peer"], _ms(row["deadline_ns"]), _ms(row["latency_ns"]))
            case "requirement":
                self._timeline.requirement(at_s, name, row["peer"], row["reason"], is_met=row["state"] == "met")
            case "path":
                self._timeline.path(at_s, name, row["peer"], row["destinations"] or (), row["state"])

    def _route(self, at_s: float, row: Mapping[str, Any]) -> None:
        source, destinations = row["broker"], tuple(row["destinations"] or ())
        found: dict[str, tuple[tuple[str, ...], ...]] = {}
        for path in row["paths"] or ():
            if path:
                found[path[-1]] = (*found.get(path[-1], ()), tuple(path))[:PATHS_SHOWN]
        filters = self._filters(row["deadline_ns"], row["reliable"])
        self._routes[f"{source}/{row['route']}"] = Route(
            source=source,
            destinations=destinations,
            filters=filters,
            paths=found,
            deadline_ms=_ms(row["deadline_ns"]),
            reliable=bool(row["reliable"]),
            cause=row["reason"] or "",
            version=row["version"] or 0,
        )
        self._timeline.route(at_s, source, filters, destinations, found, row["reason"] or "")

    def _filters(self, deadline_ns: Nanos | None, reliable: bool | None) -> tuple[str, ...]:
        """Events of routes name no topics: all filters of that class, if there are any."""
        return tuple(
            topic.filter
            for topic in self._network.topics
            if _ms(topic.deadline_ns) == _ms(deadline_ns) and (topic.reliability == "reliable") == bool(reliable)
        )

    # The state of a step

    def _brokers(self, steps: Mapping[str, BrokerStep], at_s: float) -> dict[str, BrokerStatus]:
        for name in sorted(self._present - steps.keys() - self._stopped):
            self._timeline.broker(at_s, "bad", name, "is lost", "it records nothing")
        for name in sorted(steps.keys() & (self._known - self._present - self._started)):
            self._timeline.broker(at_s, "good", name, "records again")
        self._started.clear()
        self._present = set(steps)
        self._known |= self._present
        self._routes = {key: one for key, one in self._routes.items() if one.source in self._present}
        return {name: self._broker(name, steps.get(name)) for name in self._names}

    def _broker(self, name: str, step: BrokerStep | None) -> BrokerStatus:
        place, seconds = self._places.get(name), self._period.step_ns / SECOND
        latitude, longitude = (place.latitude, place.longitude) if place is not None else (None, None)
        domain = place.domain if place is not None else ""
        if step is None:
            why = "it has stopped" if name in self._stopped else "it records nothing"
            state = BrokerStatus(state="lost" if name in self._known else "unknown", why=why)
        else:
            state = BrokerStatus(
                state="serving",
                in_hz=rounded(step.messages_in / seconds),
                out_hz=rounded(step.messages_out / seconds),
                queue_messages=step.queue_messages,
            )
        return _placed(state, latitude, longitude, domain)

    def _links(self, steps: Mapping[tuple[str, str], LinkStep]) -> dict[str, Link]:
        for broker, peer in steps:
            self._pairs.setdefault(link_name(broker, peer), (min(broker, peer), max(broker, peer)))
        links = {}
        for name, (one, other) in self._pairs.items():
            there, back = self._way(steps.get((one, other))), self._way(steps.get((other, one)))
            links[name] = Link(ends=(one, other), state=worse(there.state, back.state), ways=(there, back))
        return links

    def _way(self, step: LinkStep | None) -> LinkDirection:
        if step is None:
            return LinkDirection()
        return LinkDirection(
            state=step.state,  # type: ignore[arg-type]  # the words of the table are those of the page
            latency_ms=None if step.latency_ns is None else rounded(step.latency_ns / MS),
            jitter_ms=None if step.jitter_ns is None else round(step.jitter_ns / MS, 2),
            loss=None if step.loss is None else rounded(step.loss, 2),
            rate_bps=rounded(8 * step.bytes_out * SECOND / self._period.step_ns),
            queue_bytes=step.queue_bytes,
            queue_bytes_max=step.queue_bytes_max,
        )

    def _topics(self, steps: Mapping[str, TopicStep]) -> dict[str, Topic]:
        classes = {topic.filter: topic for topic in self._network.topics}
        for name in steps:
            self._totals.setdefault(name, TopicStep())
        found = {}
        for name, total in self._totals.items():
            step = steps.get(name, TopicStep())
            total.published += step.published
            total.delivered += step.delivered
            total.in_time += step.in_time
            described = classes.get(name)
            found[name] = Topic(
                deadline_ms=_ms(described.deadline_ns) if described is not None else None,
                reliable=described is not None and described.reliability == "reliable",
                routing=described.routing if described is not None else self._network.defaults.routing,
                rate_hz=rounded(step.published * SECOND / self._period.step_ns),
                lately=_figures(step),
                total=Figures(published=total.published, delivered=total.delivered, in_time=total.in_time),
            )
        return found


def _figures(step: TopicStep) -> Figures:
    return Figures(
        published=step.published,
        delivered=step.delivered,
        in_time=step.in_time,
        p50_ms=_percentile_ms(step.ages, 50),
        p99_ms=_percentile_ms(step.ages, 99),
    )


def _percentile_ms(ages: Mapping[int, int], percent: int) -> float | None:
    """By nearest rank; None without messages."""
    rank, seen = (sum(ages.values()) * percent + 99) // 100, 0
    for age_class in sorted(ages):
        seen += ages[age_class]
        if seen >= rank:
            return rounded(age_ns(age_class) / MS)
    return None


def _placed(state: BrokerStatus, latitude: float | None, longitude: float | None, domain: str) -> BrokerStatus:
    return structs.replace(state, latitude=latitude, longitude=longitude, domain=domain)


def _ms(value_ns: Nanos | None) -> float | None:
    return None if value_ns is None or value_ns >= NEVER else value_ns / MS
