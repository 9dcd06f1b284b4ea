"""The timeline: numbered events with their text, and the time since the action that may have caused them.

Both ends of a link report it; the second report shortly after the first is ignored. So is the first connection of a
link.
"""

from collections.abc import Mapping, Sequence

from overlane.monitor.overlay_state import Link, link_name
from overlane.monitor.timeline_events import Kind, TimelineEvent, Weight, describe_link, describe_route

ECHO_S = 3.0
CAUSE_S = 10.0
"""An event this soon after an action may be its effect."""
SAMPLES_MIN = 3
ADAPT = 0.02
"""Smoothing factor of the usual latency."""


class SlowLinkDetector:
    """Detects links whose latency is far above their usual value."""

    def __init__(self) -> None:
        self._usual_ms: dict[str, float] = {}
        self._slow: set[str] = set()
        self._looks: dict[str, int] = {}
        """Consecutive samples that contradict the current verdict of a link."""

    def judge(self, link: str, latency_ms: float) -> tuple[str, Weight] | None:
        """The text of the event if the verdict changed."""
        usual_ms = self._usual_ms.setdefault(link, latency_ms)
        is_slow = latency_ms > 1.5 * usual_ms + 5
        if link in self._slow:
            if self._count_sample(link, latency_ms < 1.2 * usual_ms + 2):
                self._slow.discard(link)
                return f"is back to normal: {latency_ms:.3g} ms", "good"
        elif self._count_sample(link, is_slow):
            self._slow.add(link)
            return f"is slow: {latency_ms:.3g} ms instead of {usual_ms:.3g} ms", "warning"
        elif not is_slow:
            self._usual_ms[link] = usual_ms + ADAPT * (latency_ms - usual_ms)
        return None

    def _count_sample(self, link: str, is_other: bool) -> bool:
        """Count a sample; True once enough consecutive samples agree."""
        looks = self._looks[link] = self._looks.get(link, 0) + 1 if is_other else 0
        if looks < SAMPLES_MIN:
            return False
        self._looks[link] = 0
        return True


class Timeline:
    def __init__(self) -> None:
        self._number = 0
        self._action_s: float | None = None
        self._slowness = SlowLinkDetector()
        self._known: set[str] = set()
        self._links: dict[tuple[str, str], float] = {}
        self._news: list[TimelineEvent] = []

    def take(self) -> tuple[TimelineEvent, ...]:
        """What happened since the last time, in the order of time."""
        news, self._news = self._news, []
        return tuple(sorted(news, key=lambda one: one.at_s))

    def action(self, at_s: float, text: str, brokers: Sequence[str] = (), link: str = "") -> None:
        """Somebody has done something to the overlay."""
        self._action_s = at_s
        self._add(at_s, "deed", "note", text, brokers=brokers, link=link)

    def link(self, at_s: float, broker: str, peer: str, state: str, *, is_old: bool = False) -> None:
        """`is_old`: it happened before monitoring started."""
        name = link_name(broker, peer)
        reported_s = self._links.get((name, state), -ECHO_S - 1)
        is_first = name not in self._known
        self._known.add(name)
        if at_s - reported_s < ECHO_S or (state == "up" and (is_first or is_old)):
            return
        self._links[name, state] = at_s
        one, other = name.split("|")
        words, weight = describe_link(one, other, state)
        self._add(at_s, "link", weight, words, f"reported by {broker}", (one, other), name)

    def measured(self, at_s: float, links: Mapping[str, Link]) -> None:
        """Check measured latencies: links that became slow, or normal again."""
        for name, link in links.items():
            measured = [way.latency_ms for way in link.ways if way.latency_ms is not None]
            if link.state == "up" and measured and (said := self._slowness.judge(name, max(measured))) is not None:
                words, weight = said
                self._add(at_s, "link", weight, f"{' - '.join(link.ends)} {words}", brokers=link.ends, link=name)

    def route(
        self,
        at_s: float,
        source: str,
        filters: Sequence[str],
        destinations: Sequence[str],
        paths: Mapping[str, Sequence[Sequence[str]]],
        cause: str,
    ) -> None:
        words = describe_route(source, filters, destinations, paths)
        weight: Weight = "note" if any(paths.values()) else "bad"
        self._add(at_s, "route", weight, words, cause, (source, *destinations), filters=filters)

    def deadline(
        self, at_s: float, source: str, destination: str, deadline_ms: float | None, latency_ms: float | None
    ) -> None:
        takes = "" if latency_ms is None else f": the fastest takes {latency_ms:.0f} ms"
        words = f"no path from {source} to {destination} meets {deadline_ms or 0:g} ms{takes}"
        self._add(at_s, "deadline", "warning", words, brokers=(source, destination))

    def requirement(self, at_s: float, source: str, destination: str, told: str, *, is_met: bool) -> None:
        words = f"{source} to {destination}: {told}"
        self._add(at_s, "deadline", "good" if is_met else "warning", words, brokers=(source, destination))

    def path(self, at_s: float, source: str, hops: str, destinations: Sequence[str], state: str) -> None:
        is_good = state == "trusted"
        words = f"what {source} sends to {', '.join(destinations)} over {hops} "
        words += "arrives again" if is_good else "does not arrive: it is avoided"
        self._add(at_s, "route", "good" if is_good else "warning", words, brokers=(source, *destinations))

    def broker(self, at_s: float, weight: Weight, broker: str, words: str, cause: str = "") -> None:
        self._add(at_s, "broker", weight, f"{broker} {words}", cause, (broker,))

    def _add(
        self,
        at_s: float,
        kind: Kind,
        weight: Weight,
        text: str,
        cause: str = "",
        brokers: Sequence[str] = (),
        link: str = "",
        filters: Sequence[str] = (),
    ) -> None:
        self._number += 1
        since_s = None if self._action_s is None or kind == "deed" else at_s - self._action_s
        self._news.append(
            TimelineEvent(
                number=self._number,
                at_s=round(at_s, 3),
                kind=kind,
                weight=weight,
                text=text,
                cause=cause,
                after_ms=round(since_s * 1000) if since_s is not None and 0 <= since_s <= CAUSE_S else None,
                brokers=tuple(brokers),
                link=link,
                filters=tuple(filters),
            )
        )
