"""The small parts of the client, each by itself."""

from pathlib import Path
from types import FunctionType

import mqtt5
import pytest
from conversation import packet

import overlane.client
from overlane.client import InvalidRequest, Message, Order, Qos, Reliability, TopicQos, Unreachable, connect
from overlane.client.address import Address, parse_address
from overlane.client.address_book import AddressBook
from overlane.client.backoff import Backoff
from overlane.client.batch import CHUNK_BYTES, written_batches
from overlane.client.clocks import moment
from overlane.client.errors import Refused, described
from overlane.client.inbox import INBOX_BYTES_MAX, UNCLAIMED_QOS_0_MAX, Inboxes
from overlane.client.message import Publication, Receipt, encoded_properties
from overlane.client.qos import chosen, duration_s
from overlane.client.stamp import Moment, parse_stamp
from overlane.core.units import MS, SECOND
from overlane.mqtt.codec import codec5
from overlane.mqtt.codec.framing import Framer
from test_imports import WORLD, imported

DOCUMENT = Path(__file__).parents[2] / "docs" / "client.md"
PROTOCOL = Path(__file__).parents[2] / "src" / "overlane" / "client" / "protocol"


@pytest.mark.parametrize("path", sorted(PROTOCOL.glob("*.py")), ids=lambda path: str(path.name))
def test_the_protocol_touches_nothing_of_the_world(path: Path) -> None:
    names = [name for _, name in imported(path.read_text(encoding="utf-8"), "overlane.client.protocol")]
    assert [name for name in names if name.split(".")[0] in WORLD] == []
    driven_by = (
        "overlane.client.driver",
        "overlane.client.engine",
        "overlane.client.connection",
        "overlane.client.clocks",
    )
    assert [name for name in names if name.startswith(driven_by)] == []


@pytest.mark.parametrize("name", overlane.client.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    public = getattr(overlane.client, name)
    assert f"`{name}" in DOCUMENT.read_text(encoding="utf-8")
    assert public.__doc__
    members = vars(public) if isinstance(public, type) else {}
    bare = [name for name, member in members.items() if not name.startswith("_") and _is_code(member)]
    assert [name for name in bare if not members[name].__doc__] == []


def _is_code(member: object) -> bool:
    return isinstance(member, property | FunctionType)


@pytest.mark.parametrize(
    ("text", "tls", "address"),
    [
        ("host", False, Address("host", 1883, False)),
        ("host", True, Address("host", 8883, True)),
        ("host:99", False, Address("host", 99, False)),
        ("10.0.0.1:99", True, Address("10.0.0.1", 99, True)),
        ("[::1]:99", False, Address("::1", 99, False)),
        ("[fe80::1%eth0]", False, Address("fe80::1%eth0", 1883, False)),
        ("mqtt://host/", False, Address("host", 1883, False)),
        ("mqtts://host", False, Address("host", 8883, True)),
        ("mqtts://host:1", False, Address("host", 1, True)),
    ],
)
def test_addresses_as_people_write_them(text: str, tls: bool, address: Address) -> None:
    assert parse_address(text, tls) == address
    assert parse_address(f"{'mqtts' if address.tls else 'mqtt'}://{address}") == address


def test_pauses_double_up_to_the_limit_with_half_left_to_chance() -> None:
    backoff = Backoff(100 * MS, 500 * MS)
    assert [backoff.pause(1.0) for _ in range(5)] == [100 * MS, 200 * MS, 400 * MS, 500 * MS, 500 * MS]
    assert [backoff.pause(luck) for luck in (0.0, 0.5)] == [250 * MS, 375 * MS]
    backoff.held(1 * SECOND)
    assert backoff.pause(1.0) == 500 * MS
    backoff.held(5 * SECOND)
    assert backoff.pause(1.0) == 100 * MS


def properties(deadline: str = "", reliability: str = "", order: str = "") -> tuple[tuple[str, str], ...]:
    all_three = ("overlane-deadline", deadline), ("overlane-reliability", reliability), ("overlane-order", order)
    return tuple((name, value) for name, value in all_three if value)


@pytest.mark.parametrize(
    ("qos", "deadline", "reliability", "level", "said"),
    [
        (None, None, None, 0, properties()),
        (2, None, None, 2, properties()),
        (Qos.AT_LEAST_ONCE, "60ms", None, 1, properties("60ms")),
        (None, None, "reliable", 1, properties("", "reliable")),
        (0, None, Reliability.RELIABLE, 0, properties("", "reliable")),
        (None, None, "best-effort", 0, properties("", "best-effort")),
        (TopicQos("1s", "reliable"), None, None, 1, properties("1s", "reliable")),
        (TopicQos("1s", "reliable", 2), "5ms", "best-effort", 2, properties("5ms", "best-effort")),
        (TopicQos("1s", order="strict"), "5ms", None, 0, properties("5ms", "", "strict")),
        (TopicQos(level=1, order=Order.DEADLINE), None, None, 1, properties("", "", "deadline")),
    ],
)
def test_what_a_call_says_goes_before_what_its_class_says(
    qos: TopicQos | Qos | int | None,
    deadline: str | None,
    reliability: str | None,
    level: int,
    said: tuple[tuple[str, str], ...],
) -> None:
    assert chosen(qos, deadline, reliability) == (level, said)


def test_a_class_of_quality_is_a_value() -> None:
    assert TopicQos("60ms", "reliable") == TopicQos("60ms", Reliability.RELIABLE)
    assert len({TopicQos("60ms"), TopicQos("60ms"), TopicQos("61ms")}) == 2
    for wrong in ({"deadline": "-1s"}, {"reliability": "sure"}, {"level": 3}):
        with pytest.raises(InvalidRequest):
            TopicQos(**wrong)


def test_seconds_are_rounded_up_because_mqtt_knows_no_less() -> None:
    assert [duration_s(text, "expiry") for text in ("0s", "1ms", "1s", "1.5s", "2m")] == [0, 1, 1, 2, 120]


def test_a_stamp_is_exact_on_one_machine_and_by_the_wall_clock_between_two() -> None:
    published, read = Moment("here", 5_000, 1_000_000), Moment("here", 7_000, 9_000_000)
    assert read.since(published) == 2_000
    assert Moment("there", 7_000, 9_000_000).since(published) == 8_000_000
    assert parse_stamp(str(published)) == published
    now = moment()
    assert parse_stamp(str(now)) == now
    for nonsense in ("", "a.b.c", "a.1", "a.1.2.3", "a.1.-2", "a.1.²", "x" * 200):
        assert parse_stamp(nonsense) is None


@pytest.mark.parametrize("pairs", [(), (("name", "value" * 40),)])
def test_batches_are_the_same_packets_in_few_pieces(pairs: tuple[tuple[str, str], ...]) -> None:
    model = Publication(b"a/b", b"", retain=True, expiry_s=9, properties=encoded_properties(None, None, None, pairs))
    bodies = [bytes([number % 256]) * (number * 7 % 900) for number in range(2_000)]
    chunks = list(written_batches(model, bodies, 1 << 20))
    assert len(chunks) > 3
    assert all(len(chunk) < CHUNK_BYTES + 2_000 for chunk, _ in chunks)
    packets = [codec5.read(view) for chunk, _ in chunks for view in Framer(1 << 20).feed(chunk)]
    expected = [
        mqtt5.PublishPacket("a/b", body, retain=True, message_expiry_interval=9, user_properties=list(pairs))
        for body in bodies
    ]
    assert packets == expected
    assert sum(count for _, count in chunks) == 2_000
    with pytest.raises(InvalidRequest, match="at most 500"):
        list(written_batches(model, bodies, 500))


def test_errors_tell_what_and_why() -> None:
    assert str(Refused("message to a", 0x87, "keep out")) == "message to a: not authorized (0x87): keep out"
    assert described(0xEE) == "unknown reason (0xEE)"
    told = Unreachable([("a:1", "connection refused"), ("b:2", "no answer in time")])
    assert str(told) == "no connection: a:1: connection refused; b:2: no answer in time"


def message(topic: str, qos: int = 0, *identifiers: int) -> Message:
    arrived = mqtt5.PublishPacket(
        topic, b"", qos=mqtt5.QoS(qos), packet_id=1 if qos else None, subscription_ids=list(identifiers)
    )
    return Message(arrived, Receipt(arrived, 0) if qos else None)


def test_a_message_goes_by_its_identifiers_and_else_by_its_topic() -> None:
    inboxes = Inboxes(lambda _: None)
    wide, narrow = inboxes.open(1, ["a/#"], 10), inboxes.open(2, ["a/b"], 10)
    inboxes.deliver(message("a/b", 0, 2))
    assert (len(wide.messages), len(narrow.messages)) == (0, 1)
    both = message("a/b", 1, 1, 2)
    inboxes.deliver(both)
    assert (len(wide.messages), len(narrow.messages)) == (1, 2)
    assert both.receipt is not None
    assert both.receipt.readers == 2
    inboxes.deliver(message("a/b"))
    inboxes.deliver(message("a/c", 0, 7))
    assert (len(wide.messages), len(narrow.messages)) == (3, 3)


def test_a_shared_subscription_hears_what_its_filter_hears() -> None:
    inboxes = Inboxes(lambda _: None)
    shared = inboxes.open(1, ["$share/group/a/+"], 10)
    inboxes.deliver(message("a/b"))
    assert len(shared.messages) == 1


def test_unclaimed_messages_wait_for_who_subscribes_and_those_of_qos_0_not_without_end() -> None:
    inboxes = Inboxes(lambda _: None)
    for _ in range(UNCLAIMED_QOS_0_MAX + 5):
        inboxes.deliver(message("a", 0, 3))
    inboxes.deliver(message("b", 1, 3))
    assert (len(inboxes.unclaimed.messages), inboxes.dropped) == (UNCLAIMED_QOS_0_MAX + 1, 5)
    assert len(inboxes.open(1, ["b"], 10).messages) == 1
    assert len(inboxes.unclaimed.messages) == UNCLAIMED_QOS_0_MAX


def test_a_closed_inbox_leaves_its_messages_to_the_session_or_is_done_with_them() -> None:
    for keep_unread in (True, False):
        done: list[Message] = []
        inboxes = Inboxes(done.append)
        inbox = inboxes.open(1, ["a"], 10)
        for _ in range(3):
            inboxes.deliver(message("a", 1, 1))
        inbox.taken.append(inbox.take())
        inboxes.close(1, keep_unread)
        assert inbox.ended
        assert len(inboxes.unclaimed.messages) == (2 if keep_unread else 0)
        assert len(done) == (0 if keep_unread else 3)
        inboxes.acknowledge()
        assert len(done) == (1 if keep_unread else 3)


def test_a_full_inbox_is_full_until_half_of_it_is_read() -> None:
    inboxes = Inboxes(lambda _: None)
    inbox = inboxes.open(1, ["a"], 4)
    for _ in range(4):
        assert not inboxes.are_full
        inboxes.deliver(message("a", 0, 1))
    assert inboxes.are_full
    inbox.take()
    assert inboxes.are_full
    inbox.take()
    assert not inboxes.are_full


def test_large_messages_fill_an_inbox_by_their_size() -> None:
    inboxes = Inboxes(lambda _: None)
    inbox = inboxes.open(1, ["a"], 1000)
    for _ in range(4):
        assert not inboxes.are_full
        inboxes.deliver(Message(packet("a", bytes(INBOX_BYTES_MAX // 4))))
    assert inboxes.are_full
    assert inboxes.unread_bytes == INBOX_BYTES_MAX
    inbox.take()
    inbox.take()
    assert not inboxes.are_full


def test_a_message_shows_itself() -> None:
    assert repr(Message(packet("a", b"x"))) == "Message('a', b'x', qos=0, retained=False)"


# Addresses


def addresses(*texts: str) -> list[Address]:
    return [parse_address(text) for text in texts]


def test_addresses_that_a_broker_names_are_tried_after_those_that_were_given() -> None:
    book = AddressBook(addresses("a", "b"))
    book.connected(parse_address("a"), ["c:1883", "not an address", "b:1883"])
    assert book.in_order() == addresses("a", "b", "c")


def test_attempts_begin_where_the_session_is() -> None:
    book = AddressBook(addresses("a", "b"))
    book.connected(parse_address("b"), ["c"])
    book.parted(is_sent_away=False)
    assert book.in_order() == addresses("b", "c", "a")


def test_a_broker_that_sends_its_clients_away_is_tried_last() -> None:
    book = AddressBook(addresses("a", "b"))
    book.connected(parse_address("a"), [])
    book.parted(is_sent_away=True)
    assert book.in_order() == addresses("b", "a")
    alone = AddressBook(addresses("a"))
    alone.parted(is_sent_away=True)
    assert alone.in_order() == addresses("a")


def test_a_named_address_is_as_secure_as_the_one_that_named_it() -> None:
    book = AddressBook(addresses("mqtts://a"))
    book.connected(parse_address("mqtts://a"), ["b:8883"])
    assert book.in_order() == addresses("mqtts://a", "mqtts://b")
    assert book.referred(parse_address("mqtts://a"), "mqtt://b") is None


def test_what_is_learned_is_bounded_and_can_be_turned_off() -> None:
    book = AddressBook(addresses("a"))
    for number in range(100):
        book.connected(parse_address("a"), [f"host-{number}"])
    assert len(book.in_order()) == 17
    assert book.in_order()[1] == parse_address("host-99")
    deaf = AddressBook(addresses("a"), learns=False)
    deaf.connected(parse_address("a"), ["b"])
    assert deaf.in_order() == addresses("a")


def test_a_reference_is_the_first_of_the_servers_that_are_named() -> None:
    a = parse_address("a")
    assert AddressBook.referred(a, "b:1884 c:1885") == parse_address("b:1884")
    assert AddressBook.referred(a, "") is AddressBook.referred(a, "::::") is None


def test_addresses_may_come_as_a_list() -> None:
    assert connect(["a", "b"], "c")._options.addresses.in_order() == addresses("a", "b", "c")
    with pytest.raises(InvalidRequest, match="an address is required"):
        connect([])
