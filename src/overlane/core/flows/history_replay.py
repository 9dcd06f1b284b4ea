"""History replay: what is kept of topics with history, for brokers that need them later.

Messages that were sent are kept under the name of their parcel (`source`); those that no other broker needed when they
were published get a name here. A broker that newly needs a topic is sent what is kept of it, in parcels that say so.
"""

from typing import Protocol

from overlane.core.events import Effect
from overlane.core.federation import Federation
from overlane.core.flows.flow_table import FlowTable
from overlane.core.flows.history import Kept, TopicHistory, wrap
from overlane.core.flows.outflow import FlowName, Outflow
from overlane.core.flows.topic_order import TopicOrder
from overlane.core.qos import QosClass
from overlane.core.units import Nanos
from overlane.core.wire.parcel import Columns, cut


class Seal(Protocol):
    """Makes a parcel of messages of a flow, and sends it (`Source`)."""

    def __call__(self, flow: Outflow, messages: Columns, now: Nanos, history: bool = False) -> None: ...


class HistoryReplay:
    def __init__(
        self,
        me: tuple[int, int],
        history: TopicHistory,
        federation: Federation,
        table: FlowTable,
        places: TopicOrder,
        seal: Seal,
    ) -> None:
        """`me`: identity and incarnation of this broker."""
        self._me = me
        self._history = history
        self._federation = federation
        self._table = table
        self._places = places
        self._seal = seal
        self._unsent = 0
        """Messages that were kept without being sent."""

    def keep_unsent(self, topic: str, body: bytes, flags: int, qos: QosClass, now: Nanos) -> list[Effect]:
        """Keep a message that no other broker needs yet."""
        self._unsent += 1
        name = *self._me, 0, self._unsent, 0
        return self._history.keep(Kept(name, topic, flags, body, qos, now), now)

    def send(self, broker: str, filters: list[str], now: Nanos) -> None:
        """Send a broker what is kept of the topics of these filters, as far as it may leave the domain."""
        chosen: dict[tuple[int, ...], Kept] = {}
        for kept in self._history.matching_any(filters, own_only=True, now=now):
            if self._federation.may_leave(kept.topic, broker):
                chosen[kept.name] = kept
        flows: dict[FlowName, tuple[Outflow, list[Kept]]] = {}
        for kept in chosen.values():
            flow = self._table.open(kept.qos, (broker,), now)
            flows.setdefault(flow.name, (flow, []))[1].append(kept)
        for flow, past in flows.values():
            for piece in cut([(kept.topic, kept.flags, wrap(kept)) for kept in past]):
                self._replay(flow, piece, now)

    def _replay(self, flow: Outflow, messages: Columns, now: Nanos) -> None:
        before = {topic: self._places.of(topic) for topic in messages[0]}
        self._seal(flow, messages, now, history=True)
        for topic, places in before.items():
            for name, (sequence, at) in places.items():
                if name != flow.name:
                    self._places.also_at(topic, name, sequence, at)
