"""A broker that dials one which does not know it: refused at first, and linked when it has become a neighbour."""

import asyncio
import time

from overlane.core.broker import OverlayBroker
from overlane.core.config import BrokerConfig
from overlane.core.events import Event, Lane, LinkUp
from overlane.core.qos import QosTable
from overlane.local_ports import free_ports
from overlane.membership.endpoint import Endpoint
from overlane.membership.neighbours import NeighbourChanges, NeighbourConfig
from overlane.node.links.overlay import Overlay


class Turns:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def handle(self, event: Event) -> None:
        self.events.append(event)

    def tell_core(self, event: Event) -> None:
        self.events.append(event)

    def received(self, peer: str, data: bytes, lane: Lane) -> None: ...
    def links_have_room(self) -> None: ...


def overlay(name: str) -> tuple[Overlay, Turns]:
    turns = Turns()
    return Overlay(OverlayBroker(BrokerConfig(name, QosTable({})), 1), time.monotonic_ns, turns), turns


def test_a_stranger_that_becomes_a_neighbour_is_linked_at_its_next_attempt() -> None:
    async def story() -> None:
        one, events_of_one = overlay("one")
        other, events_of_other = overlay("other")
        strangers: list[str] = []

        def accept(stranger: str) -> None:
            strangers.append(stranger)
            other.reconfigure(NeighbourChanges((), {stranger: NeighbourConfig(is_direct=True)}))

        other.on_stranger = accept
        address = Endpoint("127.0.0.1", free_ports(1)[0])
        await other.listen(address)
        one.reconfigure(NeighbourChanges((), {"other": NeighbourConfig((address,), is_direct=True)}))
        try:
            async with asyncio.timeout(20):
                await asyncio.gather(one.linked.wait(), other.linked.wait())
        finally:
            await one.end()
            await other.end()
        assert strangers == ["one"]
        assert LinkUp("one") in events_of_other.events
        assert LinkUp("other") in events_of_one.events

    asyncio.run(story())
