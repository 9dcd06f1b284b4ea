"""Edges of different domains do not know each other: what makes one look another up, so that a link can open soon."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from overlane.coordination.contract import Deliver, Event, Service
from overlane.coordination.in_memory import InMemoryEnsemble
from overlane.coordination.records import BrokerRecord
from overlane.coordination.view import Kept
from overlane.network.schema import RoutingTier
from overlane.node.coordination.driver import Coordinated
from waiting import eventually_async


class NoLinks:
    """`driver.Links` of a broker that is linked with nobody."""

    def __init__(self, partners: set[str]) -> None:
        self._partners = partners

    def is_up(self, peer: str) -> bool:  # noqa: ARG002
        return False

    def latencies_us(self) -> dict[str, int]:
        return {}

    def deadline_partners(self) -> set[str]:
        return self._partners

    def sent(self) -> tuple[int, int | None]:
        return 0, None

    def lag_s(self) -> float:
        return 0.0


@asynccontextmanager
async def edges(partners: set[str]) -> AsyncIterator[Coordinated]:
    """The edge `east-1`, which exchanges messages with a deadline with these; `west-1` of another domain is there."""
    ensemble, loop = InMemoryEnsemble(), asyncio.get_running_loop()

    def connect(deliver: Deliver) -> Service:
        def deliver_soon(event: Event) -> None:
            loop.call_soon(deliver, event)

        return ensemble.connect(deliver_soon)

    def edge(domain: str, instance: int) -> Coordinated:
        record = BrokerRecord(domain, "edge", instance, (f"127.0.0.1:{7000 + instance}",))
        return Coordinated(
            f"{domain}-1",
            record,
            RoutingTier(),
            Kept(),
            None,
            time.monotonic_ns,
            NoLinks(partners),
            connect,
            lambda: None,
            lambda _: None,
        )

    west, east = edge("west", 1), edge("east", 2)
    try:
        await eventually_async(
            lambda: all(one.view.me in one.participant.members for one in (west, east)), "both are registered"
        )
        assert "west-1" not in east.view.members
        yield east
    finally:
        await west.end()
        await east.end()


def test_an_edge_that_a_stranger_has_dialled_accepts_it_when_it_has_read_its_registration() -> None:
    async def story() -> None:
        async with edges(set()) as east:
            east.dialled_by("west-1")
            assert not east.view.accepted()
            await eventually_async(lambda: east.view.accepted() == ["west-1"], "west-1 may open a direct link")

    asyncio.run(story())


def test_a_stranger_that_is_not_registered_is_not_accepted() -> None:
    async def story() -> None:
        async with edges(set()) as east:
            east.dialled_by("nobody")
            east.dialled_by("west-1")
            await eventually_async(lambda: bool(east.view.accepted()), "west-1 may open a direct link")
            assert east.view.accepted() == ["west-1"]

    asyncio.run(story())


def test_edges_with_which_messages_with_a_deadline_are_exchanged_are_known_before_they_dial() -> None:
    async def story() -> None:
        async with edges({"west-1"}) as east:
            await eventually_async(lambda: "west-1" in east.view.members, "west-1 is known")
            east.dialled_by("west-1")
            assert east.view.accepted() == ["west-1"]

    asyncio.run(story())
