"""Logins, access rights and TLS with a real ZooKeeper server: who is let in, who is not, and what is said then."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from secured import Secured, secured_server
from services import WAIT_S, Client, has_zookeeper

from overlane.coordination.client import coordination_client
from overlane.coordination.contract import (
    Create,
    Delete,
    Done,
    Event,
    Found,
    List,
    LoginRefused,
    Read,
    Reason,
    Rejected,
    Replace,
)
from overlane.coordination.participant import NotAllowed, Notice, Participant
from overlane.coordination.reading import read_overview
from overlane.coordination.records import BrokerRecord
from overlane.coordination.zookeeper import Access, Tls, ZooKeeper
from overlane.errors import Unavailable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("zookeeper"),
    pytest.mark.skipif(not has_zookeeper(), reason="no Java, or no ZooKeeper"),
]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_server(tmp_path_factory.mktemp("secured")) as found:
        yield found


def client_of(access: Access) -> Client:
    return Client(lambda deliver: ZooKeeper(access, deliver))


async def close(*clients: Client) -> None:
    for client in clients:
        await asyncio.to_thread(client.service.close)


def test_who_logs_in_reads_and_writes_and_others_can_do_neither(secured: Secured) -> None:
    async def story() -> None:
        owner = client_of(secured.access("plant", "/plant"))
        await owner.connected()
        assert await owner.change(Create("/config", b"secret")) == Done((0,))
        assert isinstance(await owner.ask(Read("/config")), Found)
        visitor, nobody = client_of(secured.access("visitor", "/plant")), client_of(secured.access(None, "/plant"))
        for other in (visitor, nobody):
            await other.connected()
            refused = Rejected(0, Reason.REFUSED)
            assert await other.ask(Read("/config")) == refused
            assert await other.ask(List("/")) == refused
            assert await other.change(Create("/brokers")) == refused
            assert await other.change(Replace("/config", b"mine")) == refused
            assert await other.change(Delete("/config")) == refused
        found = await owner.ask(Read("/config"))
        assert isinstance(found, Found)
        assert (found.node.data, found.node.version) == (b"secret", 0)
        await close(owner, visitor, nobody)

    asyncio.run(story())


@pytest.mark.parametrize(("user", "password"), [("plant", "wrong-password"), ("stranger", "the-password-of-plant")])
def test_a_wrong_login_is_refused_told_and_tried_again(
    secured: Secured, user: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overlane.coordination.zookeeper.LOGIN_AGAIN_S", 0.1)

    async def story() -> None:
        client = client_of(secured.access(user, "/plant", password))
        assert [await client.event() for _ in range(2)] == 2 * [LoginRefused()]
        await close(client)
        with pytest.raises(Unavailable, match="the login was refused"):
            async with coordination_client(secured.access(user, "/plant", password)):
                pass

    asyncio.run(story())


def test_a_command_of_another_user_says_that_it_is_not_allowed(secured: Secured) -> None:
    async def story() -> None:
        async with coordination_client(secured.access("plant", "/commands")) as session:
            assert isinstance(await session.change(Create("/reports"), Create("/leader", b"{}")), Done)
            assert (await read_overview(session)).brokers == {}
        with pytest.raises(Unavailable, match="not allowed"):
            async with coordination_client(secured.access("visitor", "/commands")) as session:
                await read_overview(session)

    asyncio.run(story())


def test_a_participant_of_another_user_tells_what_it_may_not_read_and_write(secured: Secured) -> None:
    async def story() -> None:
        owner = client_of(secured.access("plant", "/participants"))
        await owner.connected()
        await owner.change(Create("/reports"), Create("/config", b"{}"))
        participant = Participant("west-1", BrokerRecord("west", "edge", 1))
        notices: asyncio.Queue[Notice] = asyncio.Queue()

        def heard(event: Event) -> None:
            for notice in participant.handle(event, 0):
                notices.put_nowait(notice)
            for number, request in participant.requests.take():
                service.ask(number, request)

        service = ZooKeeper(secured.access("visitor", "/participants"), heard)
        missing = {"/config", "/names"}
        async with asyncio.timeout(WAIT_S):
            while missing:
                notice = await notices.get()
                assert isinstance(notice, NotAllowed)
                missing.discard(notice.path)
        await asyncio.to_thread(service.close)
        await close(owner)

    asyncio.run(story())


def test_tls_with_a_certificate_that_both_trust(secured: Secured) -> None:
    async def story() -> None:
        encrypted = Access(secured.encrypted, "/tls", "plant", "the-password-of-plant", secured.tls)
        client = client_of(encrypted)
        await client.connected()
        assert await client.change(Create("/a", b"sealed")) == Done((0,))
        await close(client)

    asyncio.run(story())


@pytest.mark.parametrize("case", ["another authority", "no certificate", "no TLS"])
def test_without_the_right_certificates_nothing_is_said(secured: Secured, case: str) -> None:
    tls = {
        "another authority": secured.other_ca,
        "no certificate": Tls(secured.tls.ca),
        "no TLS": None,
    }[case]
    access = replace(Access(secured.encrypted, "/tls"), tls=tls)

    async def story() -> None:
        with pytest.raises(Unavailable, match="no answer"):
            async with coordination_client(access, patience_s=0.5):
                pass

    asyncio.run(story())
