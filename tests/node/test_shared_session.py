"""Parts of a process share a session: each is answered as if it had one of its own."""

import asyncio

from overlane.coordination.contract import (
    Answered,
    Changed,
    Connected,
    Create,
    Deliver,
    Done,
    Event,
    Found,
    Read,
    Replace,
    Service,
    Suspended,
    Transaction,
    Unknown,
    Znode,
)
from overlane.coordination.in_memory import InMemoryClient, InMemoryEnsemble
from overlane.node.coordination.shared_session import SharedSession


class Part:
    def __init__(self, session: SharedSession) -> None:
        self._heard: list[Event] = []
        self.service = session.part(self._heard.append)

    async def heard(self) -> list[Event]:
        """Since it was asked last."""
        await asyncio.sleep(0)
        heard, self._heard[:] = [*self._heard], []
        return heard


def shared() -> tuple[SharedSession, InMemoryClient]:
    clients: list[InMemoryClient] = []

    def connect(deliver: Deliver) -> Service:
        clients.append(InMemoryEnsemble().connect(deliver))
        return clients[0]

    return SharedSession(connect), clients[0]


def test_each_part_hears_of_the_connection_and_of_watches_and_answers_to_its_own_questions_alone() -> None:
    async def story() -> None:
        session, client = shared()
        connected = Connected(client.session, is_new=True)
        one, other = Part(session), Part(session)
        assert (await one.heard(), await other.heard()) == ([connected], [connected])
        one.service.ask(1, Transaction((Create("/a", b"x"),)))
        other.service.ask(1, Read("/a"))
        assert await one.heard() == [Answered(1, Done((0,)))]
        (answered,) = await other.heard()
        assert answered == Answered(1, Found(Znode(b"x", 0, answered.answer.node.created, 0)))  # type: ignore[union-attr]
        one.service.ask(2, Transaction((Replace("/a", b"y"),)))
        assert await one.heard() == [Changed("/a"), Answered(2, Done((1,)))]
        assert await other.heard() == [Changed("/a")]

    asyncio.run(story())


def test_a_part_that_comes_later_hears_of_the_connection_once_and_one_that_is_closed_hears_nothing() -> None:
    async def story() -> None:
        session, client = shared()
        first, late = Part(session), Part(session)
        first.service.close()
        client.cut_off()  # before the others have heard of the connection
        late.service.ask(7, Read("/a"))
        client.reconnect()
        assert await late.heard() == [Answered(7, Unknown()), Connected(client.session, is_new=False)]
        client.cut_off()
        assert await late.heard() == [Suspended()]
        later = Part(session)
        assert await later.heard() == []
        client.reconnect()
        assert await later.heard() == [Connected(client.session, is_new=False)]
        assert await first.heard() == []

    asyncio.run(story())
