"""The flows of this broker: one for each QoS class and set of destinations, and separate ones for slow topics.

A topic whose readers are behind gets a flow of its own beside its main flow, so that the others do not wait for them.
Flows of earlier incarnations, restored from the store, are here too, but nothing more is published into them.
"""

from dataclasses import dataclass, field

from overlane.core.flows.outflow import FlowName, Outflow
from overlane.core.qos import QosClass
from overlane.core.units import Nanos

SEPARATE_FLOWS_MAX = 8
"""Topics of one flow that have flows of their own at a time: where the readers of more are behind, all are."""


@dataclass(slots=True)
class FlowTable:
    incarnation: int
    flows: dict[FlowName, Outflow]
    _main: dict[tuple[QosClass, tuple[str, ...]], Outflow] = field(default_factory=dict)
    _next: int = 1

    def of(self, qos: QosClass, destinations: tuple[str, ...]) -> list[Outflow]:
        """The flows of a class to brokers: the main one, and those that were separated from it."""
        flow = self._main.get((qos, destinations))
        return [] if flow is None else [flow, *flow.separate_flows.values()]

    def open(self, qos: QosClass, destinations: tuple[str, ...], now: Nanos) -> Outflow:
        """The flow of a class to brokers, made if there is none."""
        flow = self._main.get((qos, destinations))
        if flow is None:
            flow = self._main[qos, destinations] = self._made(qos, destinations, now)
        return flow

    def separate(self, flow: Outflow, topic: str, now: Nanos) -> Outflow:
        """The separate flow of a topic whose readers are behind; otherwise `flow` itself."""
        if topic not in flow.behind:
            return flow
        flow.last_used = now
        found = flow.separate_flows.get(topic)
        if found is None:
            if len(flow.separate_flows) >= SEPARATE_FLOWS_MAX:
                return flow
            found = flow.separate_flows[topic] = self._made(flow.qos, flow.destinations, now)
            found.main = flow
        return found

    def drop(self, flow: Outflow) -> bool:
        """Forget a flow; True if it was the main one of its class and destinations."""
        del self.flows[flow.name]
        if flow.main is not flow:
            flow.main.separate_flows = {
                topic: one for topic, one in flow.main.separate_flows.items() if one is not flow
            }
            flow.main.update_separated_topics()
            return False
        if self._main.get((flow.qos, flow.destinations)) is not flow:
            return False
        del self._main[flow.qos, flow.destinations]
        return True

    def _made(self, qos: QosClass, destinations: tuple[str, ...], now: Nanos) -> Outflow:
        flow = self.flows[self.incarnation, self._next] = Outflow((self.incarnation, self._next), qos, destinations)
        self._next += 1
        flow.last_used = now
        return flow
