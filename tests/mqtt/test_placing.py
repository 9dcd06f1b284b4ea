"""A client connects to a broker of a domain with several: what the broker says and does, by the end of the search."""

from typing import Any

import mqtt5
import pytest
import raw
from clients import NEVER_S, Bench, Client

from overlane.mqtt.codec import codec5, codec311
from overlane.mqtt.connection import Connection
from overlane.mqtt.placing import without_password
from overlane.pubsub.access import Rule
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.questions import PassOn, Placed
from overlane.pubsub.sessions.domain import Answer, Ask, Domain, DomainPeer, HeldSession, Holding, decode, encode
from overlane.pubsub.sessions.lookup import LOOKUP_WITHIN

HERE, DENVER = {"mqtt": "seattle:1883"}, {"mqtt": "denver:1883", "websocket": "denver:8080"}
REDIRECT = [("overlane-redirect", "yes")]
Answering = mqtt5.ConnAckReasonCode


class DomainBench(Bench):
    """Seattle, in one domain with Denver, which answers as a test says."""

    def __init__(self, **how: Any) -> None:
        self.said: list[object] = []
        self.passes: list[PassOn] = []
        uplink = Alone()
        uplink.send_to = self.send  # type: ignore[method-assign]
        super().__init__(uplink=uplink, **how)
        self.server.lookup.follow(Domain(HERE, (DomainPeer("denver", DENVER),)), self.now)

    def send(self, peer: str, body: bytes, now: int) -> bool:  # noqa: ARG002
        self.said.append(decode(body))
        return True

    def answer_search(self, held: HeldSession = HeldSession()) -> None:  # noqa: B008
        """Denver answers the latest question, and the driver does what it is to do."""
        ask = next(one for one in reversed(self.said) if isinstance(one, Ask))
        self.server.neighbour_said("denver", encode(Answer(ask.number, held)), self.now)
        self.place()

    def place(self) -> None:
        self.settle()
        placements, self.placements = self.placements, []
        for placement in placements:
            match placement:
                case Placed(connection, found):
                    assert isinstance(connection, Connection)
                    self.server.placed(connection, found, self.now)
                case PassOn():
                    self.passes.append(placement)
        self.settle()
        self.passes += [one for one in self.placements if isinstance(one, PassOn)]
        self.placements = []


def code(client: Client) -> int | None:
    return None if client.connack is None else int(client.connack.reason_code)


def test_a_client_waits_for_the_answer_and_what_it_sends_meanwhile_is_kept() -> None:
    bench = DomainBench()
    client = bench.client("alice", expiry=60)
    client.send(mqtt5.PublishPacket("t", b"x", qos=mqtt5.QoS(1), packet_id=1))
    assert (bench.said, code(client)) == ([Ask(1, "alice", False)], None)
    bench.answer_search()
    assert code(client) == 0
    assert any(isinstance(one, mqtt5.PubAckPacket) for one in client.packets)


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_whose_session_is_elsewhere_is_passed_on_with_all_that_it_has_sent(version: int) -> None:
    bench = DomainBench()
    client = bench.client("alice", version, expiry=60)
    client.send(mqtt5.PingReqPacket())
    bench.answer_search(HeldSession(Holding.KEPT, 5))
    (passed,) = bench.passes
    connection = passed.connection
    assert (passed.broker, passed.user, connection.phase) == ("denver", None, Phase.CHECKING)
    packet = (codec5 if version == 5 else codec311).read(memoryview(passed.connect))
    assert isinstance(packet, mqtt5.ConnectPacket)
    assert (packet.client_id, packet.clean_start) == ("alice", False)
    client.send(mqtt5.PingReqPacket())
    assert bench.server.passing_on(connection) == 2 * b"\xc0\x00"
    assert (connection.phase, connection in bench.server.state.connections) == (Phase.PASSED_ON, True)
    client.drop()
    assert not bench.server.state.connections


def test_a_client_whose_session_belongs_here_is_let_in_without_asking_others() -> None:
    bench = DomainBench()
    here = [("overlane-here", "yes")]
    client = bench.client("alice@seattle", expiry=60, user_properties=here)
    assert (bench.said, code(client)) == ([], 0)
    other = bench.client("alice@denver", expiry=60, user_properties=here)
    plain = bench.client("bob@seattle", expiry=60)
    assert [one.client_id for one in bench.said if isinstance(one, Ask)] == ["alice@denver", "bob@seattle"]
    assert (code(other), code(plain)) == (None, None)


def test_a_client_that_has_gone_is_not_passed_on() -> None:
    bench = DomainBench()
    client = bench.client("alice", expiry=60)
    bench.answer_search(HeldSession(Holding.KEPT, 5))
    client.drop()
    assert bench.server.passing_on(bench.passes[0].connection) is None


@pytest.mark.parametrize(("version", "reason"), [(4, 3), (5, 0x88)])
def test_a_client_is_told_if_the_broker_cannot_be_reached(version: int, reason: int) -> None:
    bench = DomainBench()
    client = bench.client("alice", version, expiry=60)
    bench.answer_search(HeldSession(Holding.KEPT, 5))
    bench.server.cannot_pass_on(bench.passes[0].connection, "denver cannot be reached")
    bench.settle()
    assert client.connack is not None
    assert int(client.connack.reason_code) in (reason, 0x88)
    assert bench.passes[0].connection.closing == "denver cannot be reached"


@pytest.mark.parametrize(
    ("holding", "reason"),
    [(Holding.KEPT, Answering.USE_ANOTHER_SERVER), (Holding.FOR_EVER, Answering.SERVER_MOVED)],
)
def test_a_client_that_asks_for_it_is_redirected(holding: Holding, reason: Answering) -> None:
    bench = DomainBench()
    client = bench.client("alice", expiry=60, user_properties=REDIRECT)
    bench.answer_search(HeldSession(holding, 5))
    assert client.connack == mqtt5.ConnAckPacket(reason_code=reason, server_reference="denver:1883")
    assert not bench.passes


def test_a_client_is_passed_on_where_the_other_broker_has_no_listener_of_its_kind() -> None:
    bench = DomainBench()
    peer = Peer("127.0.0.1", listener="mqtt_tls")
    bench.client("alice", expiry=60, user_properties=REDIRECT, peer=peer)
    bench.answer_search(HeldSession(Holding.KEPT, 5))
    assert len(bench.passes) == 1


def test_a_client_is_turned_away_while_its_session_may_be_at_a_broker_that_does_not_answer() -> None:
    bench = DomainBench()
    client = bench.client("alice", expiry=60)
    bench.wait(LOOKUP_WITHIN / 1e9)
    bench.place()
    assert client.connack is not None
    assert (code(client), client.connack.reason_str) == (
        0x88,
        "the session may be at denver, which does not answer; try again",
    )


def test_a_client_with_an_assigned_identifier_has_no_session_elsewhere() -> None:
    bench = DomainBench()
    assert code(bench.client("")) == 0
    assert bench.said == []


def test_connack_names_other_addresses_of_the_same_kind() -> None:
    bench = DomainBench()
    client = bench.client("", peer=Peer("127.0.0.1", listener="websocket"))
    assert client.connack is not None
    assert ("overlane-alternative", "denver:8080") in client.connack.user_properties
    small = bench.client("", max_packet_size=60)
    assert small.connack is not None
    assert small.connack.user_properties == []


def test_who_is_not_let_in_causes_no_search() -> None:
    bench = DomainBench(users={"alice": b"right"})
    assert code(bench.client("alice", expiry=60, username="alice", password=b"wrong")) == 0x86
    assert bench.said == []
    bench.client("alice", expiry=60, username="alice", password=b"right")
    bench.answer_search(HeldSession(Holding.KEPT, 5))
    (passed,) = bench.passes
    assert (passed.user, b"right" in passed.connect) == ("alice", False)


def test_a_will_that_is_not_allowed_ends_no_session_elsewhere() -> None:
    bench = DomainBench(rules=[Rule(user="*", publish=("t/#",), subscribe=("#",))])
    client = bench.client("alice", clean=True, will=mqtt5.Will("secret", payload=b""))
    assert (code(client), bench.said) == (0x87, [])


def test_a_client_that_was_passed_on_is_who_the_other_broker_says() -> None:
    bench = DomainBench(users={"alice": b"right"})
    here = bench.client("alice", expiry=60, peer=Peer("192.0.2.1:7", certified="bob"))
    bench.answer_search()
    assert code(here) == 0
    peer = Peer("192.0.2.1:8", is_loopback=False, certified="bob", via="denver")
    again = bench.client("alice", expiry=60, username="whoever", peer=peer)
    assert again.connack is not None
    assert again.connack.session_present
    assert bench.server.state.sessions["alice"].user == "bob"
    assert ("overlane-alternative", "seattle:1883") in again.connack.user_properties


def test_a_client_that_was_passed_on_too_late_is_not_passed_on_again() -> None:
    bench = DomainBench()
    client = bench.client("alice", expiry=60, peer=Peer("192.0.2.1:8", via="denver"))
    bench.answer_search(HeldSession(Holding.KEPT, 5))
    assert (code(client), bench.passes) == (0x88, [])


def test_another_broker_ends_a_session_by_a_clean_start() -> None:
    bench = DomainBench()
    client = bench.client("alice", expiry=60)
    bench.answer_search()
    client.subscribe("t")
    bench.server.neighbour_said("denver", encode(Ask(9, "alice", True)), bench.now)
    bench.settle()
    assert client.farewell is not None
    assert int(client.farewell.reason_code) == 0x8E
    assert bench.said[-1] == Answer(9, HeldSession())
    assert bench.tables() == {}


def test_a_session_says_when_it_was_claimed_also_after_a_restart() -> None:
    bench = DomainBench()
    bench.client("alice", expiry=NEVER_S)
    bench.answer_search()
    claimed_ns = bench.now
    bench.wait(5)
    bench.crash()
    assert bench.server.pubsub.sessions.held("alice", bench.now).claimed_ns == claimed_ns


@pytest.mark.parametrize(
    ("connect", "expected"),
    [
        (raw.connect(0x02), raw.connect(0x02)),
        (
            raw.connect(0xC2, rest=raw.text("c") + raw.text("alice") + raw.text("secret" * 50)),
            raw.connect(0x82, rest=raw.text("c") + raw.text("alice")),
        ),
        (raw.connect(0x42, rest=raw.text("c") + raw.text("secret")), raw.connect(0x02, rest=raw.text("c"))),
        (
            raw.connect(
                0xC6,
                raw.pair(),
                rest=raw.text("c")
                + raw.properties(raw.pair())
                + b"".join(map(raw.text, ("w", "x", "alice", "secret"))),
            ),
            raw.connect(
                0x86,
                raw.pair(),
                rest=raw.text("c") + raw.properties(raw.pair()) + b"".join(map(raw.text, ("w", "x", "alice"))),
            ),
        ),
        (
            raw.connect_311(0xC6, rest=b"".join(map(raw.text, ("c", "w", "x", "alice", "secret")))),
            raw.connect_311(0x86, rest=b"".join(map(raw.text, ("c", "w", "x", "alice")))),
        ),
        (
            raw.connect_311(0xC2, rest=b"".join(map(raw.text, ("c", "alice", ""))), name="MQIsdp", level=3),
            raw.connect_311(0x82, rest=b"".join(map(raw.text, ("c", "alice"))), name="MQIsdp", level=3),
        ),
    ],
)
def test_a_password_is_left_out_and_nothing_else(connect: bytes, expected: bytes) -> None:
    assert without_password(connect) == expected
