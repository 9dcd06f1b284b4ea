"""Where the last messages of each topic went, so that the next one can be put after them.

A parcel waits at the destination for all that `after` names; where a topic moved here from another flow, a predecessor
says so to the destinations that both flows have.
"""

from collections.abc import Iterable

from overlane.core.outflow import FlowName, Outflow, Retained
from overlane.core.parcel import PREDECESSORS_MAX, Predecessor, unpack_messages
from overlane.core.units import SECOND, Nanos
from overlane.core.wire import broker_id

RECENT: Nanos = 2 * SECOND
"""How long a topic's last best-effort message is remembered as a predecessor."""


class TopicPlaces:
    """Where the last messages of each topic went, so that the next one can be put after them."""

    def __init__(self) -> None:
        self._places: dict[str, dict[FlowName, tuple[int, Nanos]]] = {}

    def order(
        self, flow: Outflow, topics: Iterable[str], flows: dict[FlowName, Outflow], now: Nanos
    ) -> tuple[int, tuple[Predecessor, ...]]:
        """What the parcel about to be sealed must come after; its topics' places become that parcel."""
        after = 0
        elsewhere: dict[FlowName, int] = {}
        here, place = flow.name, (flow.sequence + 1, now)
        for topic in dict.fromkeys(topics):
            places = self._places.get(topic)
            if places is None:
                self._places[topic] = {here: place}
                continue
            for name, (sequence, at) in places.items():
                if name == here:
                    after = max(after, sequence)
                elif flow.qos.reliable or now - at < RECENT:
                    elsewhere[name] = max(elsewhere.get(name, 0), sequence)
            if len(places) > 1 or here not in places:
                self._places[topic] = {here: place}
            else:
                places[here] = place
        return after, _predecessors(flow, flows, elsewhere) if elsewhere else ()

    def order_lone(self, flow: Outflow, topic: str, now: Nanos) -> int | None:
        """As `order` for a parcel of one topic whose last messages went here alone; None, and nothing done, if not."""
        places = self._places.get(topic)
        if places is None or len(places) != 1 or (place := places.get(flow.name)) is None:
            return None
        places[flow.name] = flow.sequence + 1, now
        return place[0]

    def withdraw(self, flow: Outflow, topics: Iterable[str], after: int, now: Nanos) -> None:
        """The parcel that was sealed last has gone nowhere: these topics' last messages are those before it."""
        for topic in topics:
            if flow.name in (places := self._places[topic]):
                places[flow.name] = after, now

    def of(self, topic: str) -> dict[FlowName, tuple[int, Nanos]]:
        return self._places.get(topic, {})

    def also_at(self, topic: str, name: FlowName, sequence: int, now: Nanos) -> None:
        """A message of the topic went here too: replayed from history, or retained from an earlier life."""
        self._places.setdefault(topic, {})[name] = sequence, now

    def recover(self, parcel: Retained, name: FlowName) -> None:
        for topic, _, _ in unpack_messages(parcel.content, 0, parcel.messages):
            self.also_at(topic, name, parcel.sequence, parcel.published_ns)


def _predecessors(
    flow: Outflow, flows: dict[FlowName, Outflow], elsewhere: dict[FlowName, int]
) -> tuple[Predecessor, ...]:
    predecessors = []
    for name in sorted(elsewhere):
        earlier = flows.get(name)
        if earlier is None:
            continue
        both = [broker for broker in flow.destinations if earlier.owes(broker, elsewhere[name])]
        if both:
            predecessors.append(Predecessor(*name, elsewhere[name], tuple(map(broker_id, both))))
    return tuple(predecessors[:PREDECESSORS_MAX])
