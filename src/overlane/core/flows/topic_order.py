"""Topic order: which parcels carried the last messages of each topic, so that the next one is delivered after them.

A parcel names what must be delivered before it at its destinations: the parcels with the last messages of its topics.
A reliable parcel names these alone (`follows`), so that a missing parcel of other topics does not delay it; each of
them was delivered after those that it names itself, and so on. If there are too many, it comes after everything up to
the latest. If a topic moved here from another flow, because its readers or its class changed, a predecessor names the
other flow to the destinations that both flows have.

A parcel stands for everything before it only if it waits for all of that and goes to the same destinations. Otherwise
the last message of the topic in the other flow is remembered as well until it is acknowledged: if the later parcel does
not go to all of its destinations, or would not wait for it (best effort waits only a moment, and a class with
`order = "deadline"` no longer than its deadline allows).

Publishers choose the topics, so what is remembered is bounded. Above `TIDY_TOPICS` or `TIDY_BYTES` each new topic makes
two old ones be checked: one whose messages are acknowledged, or best effort and not recent, is forgotten. Above
`PLACES_BYTES_MAX` best-effort topics are forgotten in any case: their order is kept for a moment only.
"""

from collections.abc import Iterable
from itertools import accumulate, islice
from sys import getsizeof
from typing import NamedTuple

from overlane.core.flows.outflow import FlowName, Outflow, Retained
from overlane.core.units import SECOND, Nanos
from overlane.core.wire.frame_codec import broker_id
from overlane.core.wire.mixed_run import topics_in
from overlane.core.wire.parcel import ALONE, BROKERS_MAX, LOSSY, PREDECESSORS_MAX, Predecessor, unpack_messages

RECENT: Nanos = 2 * SECOND
"""How long a topic's last best-effort message is remembered as a predecessor."""
TIDY_TOPICS = 10_000
TIDY_BYTES = 4 * 2**20
"""With so many topics in mind, or so many bytes of them, those of which nothing is owed any more are forgotten."""
PLACES_BYTES_MAX = 64 * 2**20
LOOKED_AT = 2
"""Topics, for each new one."""
ALONE_MAX = 32
"""So many parcels are named one by one, of the same flow and of others; of more, the latest of each flow."""


class Precedence(NamedTuple):
    """What a parcel must come after: see `parcel.FlowPart`."""

    after: int
    predecessors: tuple[Predecessor, ...]
    follows: tuple[int, ...] = ()


class TopicOrder:
    """Where the last messages of each topic went, so that the next one can be put after them."""

    def __init__(self) -> None:
        self._places: dict[str, dict[FlowName, tuple[int, Nanos]]] = {}
        self._bytes = 0
        """Of the topics in memory."""

    def __len__(self) -> int:
        return len(self._places)

    def order(self, flow: Outflow, topics: Iterable[str], flows: dict[FlowName, Outflow], now: Nanos) -> Precedence:
        """What the parcel about to be sealed must come after; its topics' places become that parcel."""
        own: set[int] = set()
        elsewhere: set[tuple[FlowName, int]] = set()
        here, place = flow.name, (flow.sequence + 1, now)
        latest = 0
        for topic in topics_in(topics):
            places = self._places.get(topic)
            if places is None:
                self._enter(topic, flows, now)[here] = place
                continue
            if len(places) == 1 and (before := places.get(here)) is not None:  # as nearly always
                if before[0] != latest:
                    latest = before[0]
                    own.add(latest)
                places[here] = place
                continue
            for name, (sequence, at) in places.items():
                if name == here:
                    own.add(sequence)
                elif now - at < RECENT or (flow.reliable and name in flows and flows[name].reliable):
                    elsewhere.add((name, sequence))
            self._places[topic] = {**_not_covered(flow, places, flows), here: place}
        after = max(own, default=0)
        follows = tuple(sorted(own)) if flow.reliable and len(own) <= ALONE_MAX else ()
        return Precedence(after, _predecessors(flow, flows, elsewhere) if elsewhere else (), follows)

    def order_single(self, flow: Outflow, topic: str, now: Nanos) -> int | None:
        """As `order` for a parcel of one topic whose last messages went here alone; None, and nothing done, if not."""
        name, places = flow.name, self._places.get(topic)
        if places is None or len(places) != 1 or (place := places.get(name)) is None:
            return None
        places[name] = flow.sequence + 1, now
        return place[0]

    def withdraw(self, flow: Outflow, topics: Iterable[str], after: int, now: Nanos) -> None:
        """The parcel that was sealed last has gone nowhere: these topics' last messages are those before it."""
        for topic in topics_in(topics):
            if flow.name in (places := self.of(topic)):
                places[flow.name] = after, now

    def of(self, topic: str) -> dict[FlowName, tuple[int, Nanos]]:
        return self._places.get(topic, {})

    def also_at(self, topic: str, name: FlowName, sequence: int, now: Nanos) -> None:
        """A message of the topic is in this flow too: replayed from history, or retained in an earlier incarnation."""
        places = self._places.get(topic)
        if places is None:
            places = self._enter(topic, {}, now)
        places[name] = sequence, now

    def _enter(self, topic: str, flows: dict[FlowName, Outflow], now: Nanos) -> dict[FlowName, tuple[int, Nanos]]:
        """Its places, of which there are none yet."""
        if flows and (len(self._places) >= TIDY_TOPICS or self._bytes >= TIDY_BYTES):
            self._tidy(flows, now)
        self._bytes += getsizeof(topic)
        places = self._places[topic] = {}
        return places

    def _tidy(self, flows: dict[FlowName, Outflow], now: Nanos) -> None:
        """Look at the topics that were looked at longest ago."""
        for topic in list(islice(self._places, LOOKED_AT)):
            places = self._places.pop(topic)
            if all(self._is_settled(flows.get(name), *place, now) for name, place in places.items()):
                self._bytes -= getsizeof(topic)
            else:
                self._places[topic] = places

    def _is_settled(self, flow: Outflow | None, sequence: int, at: Nanos, now: Nanos) -> bool:
        """Whether nothing need come after this parcel any more."""
        if flow is None:
            return True
        if not flow.reliable:
            return now - at >= RECENT or self._bytes > PLACES_BYTES_MAX
        return now - at >= RECENT and not flow.missing(sequence)

    def recover(self, parcel: Retained, name: FlowName) -> None:
        for topic, _, _ in unpack_messages(parcel.content, 0, parcel.messages):
            self.also_at(topic, name, parcel.sequence, parcel.published_ns)


def _not_covered(
    flow: Outflow, places: dict[FlowName, tuple[int, Nanos]], flows: dict[FlowName, Outflow]
) -> dict[FlowName, tuple[int, Nanos]]:
    """The places in other flows of which the next parcel of this one does not tell all that is owed."""
    kept: dict[FlowName, tuple[int, Nanos]] = {}
    for name, place in places.items():
        earlier = flows.get(name)
        if name == flow.name or earlier is None:
            continue
        missing = earlier.missing(place[0])
        if missing and (_patience(flow) < _patience(earlier) or not missing.issubset(flow.destinations)):
            kept[name] = place
    return kept


def _patience(flow: Outflow) -> int:
    """How long its parcels are held for earlier ones: a moment, as their deadline allows, as long as it takes."""
    return 0 if not flow.reliable else 1 if flow.overtakes else 2


def _predecessors(
    flow: Outflow, flows: dict[FlowName, Outflow], elsewhere: set[tuple[FlowName, int]]
) -> tuple[Predecessor, ...]:
    alone = ALONE if flow.reliable and len(elsewhere) <= ALONE_MAX else 0
    named = sorted(elsewhere) if alone else sorted(dict(sorted(elsewhere)).items())
    predecessors = []
    for name, sequence in named:
        earlier = flows.get(name)
        if earlier is None:
            continue
        kind = alone if earlier.reliable else LOSSY
        both = [broker for broker in flow.destinations if earlier.owes(broker, sequence, kind)]
        if both:
            predecessors.append(Predecessor(*name, sequence, tuple(map(broker_id, both)), kind))
    # A reliable parcel with more than it can name waits at the source until it need not name so many.
    if flow.reliable:
        return tuple(predecessors)
    ends = accumulate(len(one.brokers) for one in predecessors)
    return tuple(one for one, end in zip(predecessors, ends, strict=True) if end <= BROKERS_MAX)[:PREDECESSORS_MAX]
