"""Links with mutual TLS, and brokers that can only dial."""

import asyncio
import os
import socket
import ssl
from contextlib import closing
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from brokers import free_port
from overlane.client import connect
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import Advert, ControlMessage, IncarnationProof, InterestUpdate, encode
from overlane.node.links.greeting import Credentials, Greeting
from overlane.node.security.incarnation_proof import prove
from overlane.node.security.tls import client_context
from overlane.testbed.certificates import Authority, Identity
from overlays import START_WITHIN_S, Member, RealOverlay

pytestmark = pytest.mark.slow


async def _crosses(here: str, there: str) -> None:
    got: list[bytes] = []
    async with connect(there) as reader, connect(here) as writer:
        messages = reader.subscribe("t")

        async def read() -> None:
            async for message in messages:
                got.append(bytes(message.body))

        reading = asyncio.create_task(read())
        while not got:
            await writer.publish("t", b"x")
            await asyncio.sleep(0.05)
        reading.cancel()


class SecureOverlay(RealOverlay):
    """Brokers whose certificates lie in the directory, and who believe the authority that is given for each."""

    def __init__(self, directory: Path, cas: dict[str, str], links: tuple[str, ...] = ("a-b",), more: str = "") -> None:
        super().__init__(directory, dict.fromkeys(links, 'latency = "1ms"'), more)
        self.secure(cas)


def test_brokers_with_certificates_of_one_authority_link(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    for name in "ab":
        authority.broker(name)
    net = SecureOverlay(tmp_path, {"a": "ours", "b": "ours"})
    with closing(_Ending(net)):
        net.start()
        asyncio.run(_crosses(net["a"].mqtt, net["b"].mqtt))


def test_renewed_certificates_of_links_are_taken_up_on_reload_and_the_link_stays(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    first = {name: authority.broker(name) for name in "ab"}
    net = SecureOverlay(tmp_path, {"a": "ours", "b": "ours"})
    with closing(_Ending(net)):
        net.start()
        before = shown_by(net["a"], first["b"], authority.ca)
        for name in "ab":
            authority.broker(name)
        net["a"].reload()
        net.wait_until(lambda: shown_by(net["a"], first["b"], authority.ca) != before, "the new certificate", 30.0)
        asyncio.run(_crosses(net["a"].mqtt, net["b"].mqtt))
        assert net["a"].log.read_text().count("link to b is up") == 1
        net["b"].kill()
        net["b"].start()
        net.wait_until(lambda: net["a"].log.read_text().count("link to b is up") == 2, "linked again")
        asyncio.run(_crosses(net["a"].mqtt, net["b"].mqtt))


def shown_by(member: Member, identity: Identity, ca: Path) -> bytes | None:
    """The certificate that a broker shows to its neighbours."""
    context = client_context(ca=ca, certificate=identity.certificate, key=identity.key)
    host, port = member.overlay.split(":")
    with context.wrap_socket(socket.create_connection((host, int(port)), 5), server_hostname=member.name) as connection:
        return connection.getpeercert(binary_form=True)


def test_a_certificate_of_another_authority_is_not_believed_and_that_is_said_once(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    ours.broker("a")
    theirs.broker("b")
    net = SecureOverlay(tmp_path, {"a": "ours", "b": "theirs"})
    with closing(_Ending(net)):
        for member in net.members.values():
            member.start()
        net.wait_until(lambda: all(refusals(one) for one in net.members.values()), "refused by both", 30.0)
        assert [len(refusals(one)) for one in net.members.values()] == [1, 1]
        answer = net["a"].ask("/links")
        assert isinstance(answer, dict)
        assert [(one["peer"], one["state"]) for one in answer["items"]] == [("b", "down")]


def refusals(member: Member) -> list[str]:
    lines = member.log.read_text().splitlines()
    return [line for line in lines if "warning" in line and "cannot reach" in line and "CERTIFICATE" in line]


def test_a_user_who_bears_a_brokers_name_is_no_broker(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    authority.broker("a")
    authority.client("b")
    net = SecureOverlay(tmp_path, {"a": "ours", "b": "ours"})
    with closing(_Ending(net)):
        for member in net.members.values():
            member.start()
        net.wait_until(lambda: "its certificate says" in net["a"].log.read_text(), "refused", 30.0)


def greet(member: Member, identity: Identity, ca: Path, name: str) -> ssl.SSLSocket:
    """A connection to a broker that takes us for this neighbour, by its certificate."""
    context = client_context(ca=ca, certificate=identity.certificate, key=identity.key)
    host, port = member.overlay.split(":")
    connection = context.wrap_socket(socket.create_connection((host, int(port)), 5), server_hostname=member.name)
    greeting = Greeting(Credentials(name, None, frozenset((member.name,)), False), os.urandom(16), member.name)
    connection.sendall(greeting.opening())
    while not greeting.is_done:
        answer, _ = greeting.receive(connection.recv(4096))
        connection.sendall(answer)
    return connection


def test_nobody_but_a_broker_itself_can_tell_those_far_away_that_it_was_started_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    names = ("a", "b", "c", "liar")
    identities = {name: authority.broker(name) for name in names}
    net = SecureOverlay(
        tmp_path,
        dict.fromkeys(names, "ours"),
        ("a-b", "b-c", "a-liar"),
        '\n[[events]]\nat = "1h"\njoin = "liar"\n',  # so that it is not waited for
    )
    del net.members["liar"]
    with closing(_Ending(net)):
        net.start()
        asyncio.run(asyncio.wait_for(_crosses(net["a"].mqtt, net["c"].mqtt), START_WITHIN_S))
        later = broker(net["c"])["incarnation"] + 1
        lies: list[ControlMessage] = [
            InterestUpdate("c", later, 1, -1, [], []),
            Advert("c", later, 1, [], {}, 0),
            Advert("c", later, 2, [], {}, 0, True),
            IncarnationProof(
                "c", later, prove("c", later, *(path.read_bytes() for path in astuple(identities["liar"])))
            ),
        ]
        with closing(greet(net["a"], identities["liar"], authority.ca, "liar")) as liar:
            liar.sendall(frame_codec.hello("liar", later))
            for number, lie in enumerate(lies):
                liar.sendall(frame_codec.control(number, encode(lie)))
            net.wait_until(lambda: broker(net["a"])["overlay"]["unproven_dropped"] == len(lies), "heard")
            asyncio.run(asyncio.wait_for(_crosses(net["a"].mqtt, net["c"].mqtt), START_WITHIN_S))
        asyncio.run(asyncio.wait_for(_crosses(net["c"].mqtt, net["a"].mqtt), START_WITHIN_S))
        net["c"].kill()
        net["c"].start()
        net.wait_until(lambda: net["c"].log.read_text().count("linked") == 2, "linked again")
        asyncio.run(asyncio.wait_for(_crosses(net["a"].mqtt, net["c"].mqtt), START_WITHIN_S))
        assert broker(net["a"])["overlay"]["unproven_dropped"] == len(lies)
        assert broker(net["b"])["overlay"]["unproven_dropped"] == 0
        assert "rejected the incarnation proof of c" in net["a"].log.read_text()
        assert "cannot prove the incarnation" not in net.logs()


def broker(member: Member) -> dict[str, Any]:
    answer = member.ask("/status")
    assert isinstance(answer, dict)
    return answer


def test_a_broker_behind_nat_dials_and_is_not_dialled(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"'})
    text = net.file.read_text()
    hidden = net["a"]
    net.file.write_text(text.replace(hidden.table(), hidden.table() + "reach = []\n"))
    with closing(_Ending(net)):
        net.start()
        asyncio.run(_crosses(net["a"].mqtt, net["b"].mqtt))


def test_addresses_are_tried_in_turn(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"'})
    text = net.file.read_text()
    for name in "ab":
        table = net[name].table()
        dead = f"127.0.0.1:{free_port()}"
        text = text.replace(table, table + f'reach = ["{dead}", "{net[name].overlay}"]\n')
    net.file.write_text(text)
    with closing(_Ending(net)):
        net.start()
        asyncio.run(_crosses(net["b"].mqtt, net["a"].mqtt))


class _Ending:
    def __init__(self, net: RealOverlay) -> None:
        self._net = net

    def close(self) -> None:
        self._net.end()
