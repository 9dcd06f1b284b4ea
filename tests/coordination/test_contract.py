"""The contract of a coordination service: the one in memory and a real ensemble behave alike."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from services import Client, InMemoryProvider, Provider, ZooKeeperProvider, has_zookeeper, running_ensemble

from overlane.coordination.contract import (
    Changed,
    Check,
    Children,
    ChildrenChanged,
    Connected,
    Create,
    Delete,
    Done,
    Found,
    List,
    Missing,
    Operation,
    Read,
    Reason,
    Rejected,
    Replace,
    Suspended,
    Sync,
    Unknown,
    Znode,
)

Story = Callable[[Provider], Awaitable[None]]

ROUNDS = 4
"""Of what has more than one outcome with a real service."""

pytestmark = pytest.mark.xdist_group("zookeeper")
real = pytest.param(
    "ZooKeeper", marks=[pytest.mark.slow, pytest.mark.skipif(not has_zookeeper(), reason="no Java, or no ZooKeeper")]
)


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_ensemble(tmp_path_factory.mktemp("zookeeper")) as found:
        yield found


@pytest.fixture(params=["in memory", real])
def play(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Plays a story with clients of one service, whose tree is empty."""

    def run(story: Story) -> None:
        async def whole() -> None:
            provider: Provider = (
                InMemoryProvider()
                if request.param == "in memory"
                else ZooKeeperProvider(request.getfixturevalue("addresses"), f"/{request.node.originalname}")
            )
            try:
                await story(provider)
            finally:
                await provider.close()

        asyncio.run(whole())

    return run


def data_of(answer: object) -> bytes:
    assert isinstance(answer, Found), answer
    return answer.node.data


def test_what_is_created_is_found_with_its_data_and_version(play: Callable[[Story], None]) -> None:
    async def story(provider: Provider) -> None:
        one = await provider.client()
        assert await one.change(Create("/a", b"first")) == Done((0,))
        found = await one.ask(Read("/a"))
        assert isinstance(found, Found)
        assert (found.node.data, found.node.version, found.node.owner) == (b"first", 0, 0)
        assert await one.change(Replace("/a", b"second")) == Done((1,))
        again = await one.ask(Read("/a"))
        assert again == Found(Znode(b"second", 1, found.node.created))

    play(story)


def test_later_nodes_have_greater_creation_numbers_also_under_the_same_name(play: Callable[[Story], None]) -> None:
    async def story(provider: Provider) -> None:
        one = await provider.client()
        created = []
        for _ in range(2):
            await one.change(Create("/leader"))
            found = await one.ask(Read("/leader"))
            assert isinstance(found, Found)
            created.append(found.node.created)
            await one.change(Delete("/leader"))
        assert created[0] < created[1]

    play(story)


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Create("/there"), Reason.EXISTS),
        (Create("/nowhere/child"), Reason.MISSING),
        (Replace("/nowhere", b""), Reason.MISSING),
        (Replace("/there", b"", 7), Reason.VERSION),
        (Delete("/nowhere"), Reason.MISSING),
        (Delete("/there", 7), Reason.VERSION),
        (Delete("/full"), Reason.NOT_EMPTY),
        (Create("/mortal/child"), Reason.EPHEMERAL_PARENT),
        (Check("/there", 7), Reason.VERSION),
        (Check("/nowhere", 0), Reason.MISSING),
    ],
    ids=lambda value: str(value) if isinstance(value, Create | Replace | Delete | Check) else "",
)
def test_a_transaction_changes_nothing_if_one_operation_cannot_be_carried_out(
    play: Callable[[Story], None], operation: Operation, reason: Reason
) -> None:
    async def story(provider: Provider) -> None:
        one = await provider.client()
        for old in (await _names(one, "/full")) or []:
            await one.change(Delete(f"/full/{old}"))
        for path in ("/there", "/full", "/mortal", "/new"):
            await one.change(Delete(path))
        made = (Create("/there"), Create("/full"), Create("/full/child"), Create("/mortal", is_ephemeral=True))
        assert isinstance(await one.change(*made), Done)
        before = await one.ask(Read("/there"))
        refused = await one.change(Replace("/there", b"changed"), Create("/new"), operation)
        assert refused == Rejected(2, reason)
        assert await one.ask(Read("/there")) == before
        assert await one.ask(Read("/new")) == Missing()

    play(story)


async def _names(client: Client, path: str) -> tuple[str, ...] | None:
    answer = await client.ask(List(path))
    return answer.names if isinstance(answer, Children) else None


def test_children_are_listed_in_order_and_a_missing_parent_is_said(play: Callable[[Story], None]) -> None:
    async def story(provider: Provider) -> None:
        one = await provider.client()
        assert await one.ask(List("/brokers")) == Missing()
        await one.change(Create("/brokers"), Create("/brokers/b"), Create("/brokers/a"))
        assert await one.ask(List("/brokers")) == Children(("a", "b"))

    play(story)


def test_a_watch_tells_once_that_data_has_changed(play: Callable[[Story], None]) -> None:
    async def story(provider: Provider) -> None:
        one, other = await provider.client(), await provider.client()
        await one.change(Create("/a"), Create("/end"))
        await other.ask(Sync())
        assert data_of(await other.ask(Read("/a"))) == b""
        assert data_of(await other.ask(Read("/a"))) == b""  # twice, and still told once
        await one.change(Replace("/a", b"1"))
        assert await other.event() == Changed("/a")
        await other.ask(Read("/end"))
        await one.change(Replace("/a", b"2"))
        await one.change(Replace("/end", b"done"))
        assert await other.event() == Changed("/end")

    play(story)


def test_a_watch_of_a_missing_node_tells_that_it_came_into_being(play: Callable[[Story], None]) -> None:
    async def story(provider: Provider) -> None:
        one, other = await provider.client(), await provider.client()
        assert await other.ask(Read("/later")) == Missing()
        await one.change(Create("/later", b"here"))
        assert await other.event() == Changed("/later")
        await other.ask(Sync())
        assert data_of(await other.ask(Read("/later"))) == b"here"

    play(story)


def test_a_watch_of_children_tells_of_those_that_come_and_go_not_of_their_data(play: Callable[[Story], None]) -> None:
    async def story(provider: Provider) -> None:
        one, other = await provider.client(), await provider.client()
        await one.change(Create("/brokers"), Create("/brokers/a"))
        await other.ask(Sync())
        assert await other.ask(List("/brokers")) == Children(("a",))
        await one.change(Replace("/brokers/a", b"changed"))
        await one.change(Create("/brokers/b"))
        assert await other.event() == ChildrenChanged("/brokers")
        await other.ask(Sync())
        assert await other.ask(List("/brokers")) == Children(("a", "b"))
        await one.change(Delete("/brokers/a"))
        assert await other.event() == ChildrenChanged("/brokers")

    play(story)


def test_an_ephemeral_node_goes_when_its_session_is_closed(play: Callable[[Story], None]) -> None:
    async def story(provider: Provider) -> None:
        one, other = await provider.client(), await provider.client()
        await one.change(Create("/mortal", b"alive", is_ephemeral=True))
        await other.ask(Sync())
        found = await other.ask(Read("/mortal"))
        assert isinstance(found, Found)
        assert found.node.owner != 0
        await asyncio.to_thread(one.service.close)
        assert await other.event() == Changed("/mortal")
        await other.ask(Sync())
        assert await other.ask(Read("/mortal")) == Missing()

    play(story)


def test_an_expired_session_is_followed_by_a_new_one_without_its_ephemeral_nodes(
    play: Callable[[Story], None],
) -> None:
    async def story(provider: Provider) -> None:
        one, other = await provider.client(), await provider.client()
        await one.change(Create("/stays"))
        for _ in range(ROUNDS):
            assert await one.change(Create("/mortal", is_ephemeral=True)) == Done((0,))
            await asyncio.to_thread(provider.expire, one) if isinstance(
                provider, ZooKeeperProvider
            ) else provider.expire(one)
            # Until the service has noticed, a client may be connected with the old session once more.
            told = [await one.event()]
            while not (isinstance(told[-1], Connected) and told[-1].is_new):
                told.append(await one.event())
            states = [type(event) for event in told if event != Changed("/mortal")]
            assert states == len(states) // 2 * [Suspended, Connected]
            await one.ask(Sync())
            assert await one.ask(Read("/mortal")) == Missing()
            assert isinstance(await one.ask(Read("/stays")), Found)
            await other.ask(Sync())
            assert await other.ask(Read("/mortal")) == Missing()

    play(story)


def test_what_is_asked_without_a_connection_is_answered_with_unknown_at_once(play: Callable[[Story], None]) -> None:
    async def story(provider: Provider) -> None:
        if isinstance(provider, InMemoryProvider):
            one = await provider.client()
            one.service.cut_off()  # type: ignore[attr-defined]
        else:
            one = Client(ZooKeeperProvider("127.0.0.1:1", "/none").unconnected)
        assert await one.ask(Read("/a")) == Unknown()
        assert await one.change(Create("/a")) == Unknown()
        await asyncio.to_thread(one.service.close) if not isinstance(provider, InMemoryProvider) else None

    play(story)


@pytest.mark.parametrize("path", ["a", "/a//b", "/a/", "/../a", "/a\0", "", "/" + 2_000 * "x"])
def test_a_path_that_zookeeper_would_refuse_is_refused_before_it_is_asked(
    play: Callable[[Story], None], path: str
) -> None:
    async def story(provider: Provider) -> None:
        one = await provider.client()
        with pytest.raises(ValueError, match="a path"):
            one.service.ask(1, Read(path))

    play(story)


@pytest.mark.skipif(not has_zookeeper(), reason="no Java, or no ZooKeeper")
def test_an_ensemble_keeps_its_addresses_and_its_data(tmp_path: Path) -> None:
    async def write(addresses: str) -> None:
        provider = ZooKeeperProvider(addresses, "/kept")
        one = await provider.client()
        assert await one.change(Create("/a", b"kept")) == Done((0,))
        await provider.close()

    async def read(addresses: str) -> bytes:
        provider = ZooKeeperProvider(addresses, "/kept")
        one = await provider.client()
        data = data_of(await one.ask(Read("/a")))
        await provider.close()
        return data

    with running_ensemble(tmp_path / "zk", servers=1) as addresses:
        asyncio.run(write(addresses))
    with running_ensemble(tmp_path / "zk", servers=1) as again:
        assert again == addresses
        assert asyncio.run(read(again)) == b"kept"
