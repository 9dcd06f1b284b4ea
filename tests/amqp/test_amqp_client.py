"""The AMQP client of gateways as a state machine, against a peer that says what a test says."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.amqp.client.client import AmqpClient
from overlane.amqp.client.contract import (
    ClientEvent,
    ClientOptions,
    Delivered,
    NotSent,
    Ready,
    Receiver,
    Sent,
)
from overlane.amqp.client.links import CREDIT
from overlane.amqp.client.sending import LINKS_MAX
from overlane.amqp.codec import composites
from overlane.amqp.codec.framing import (
    PROTOCOL,
    SASL_FRAME,
    SASL_PROTOCOL,
    Framer,
    frame,
    frame_of,
    transfer_body,
)
from overlane.amqp.codec.malformed import AmqpError
from overlane.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    Error,
    Flow,
    Open,
    Rejected,
    Released,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from overlane.amqp.codec.types import Symbol
from overlane.amqp.messages.reading import EXTRAS
from overlane.amqp.messages.writing import TTL_MS_MAX
from overlane.gateways.message import BridgedMessage
from overlane.gateways.sides.amqp.addresses import Addresses, chosen_name
from overlane.gateways.sides.amqp.content import read_content, write_content

OPTIONS = ClientOptions("me", "host", (Receiver("in", "in"),))


class Peer:
    """The broker's end."""

    def __init__(
        self, options: ClientOptions = OPTIONS, *, offered: tuple[str, ...] = (), window: int = 1000, product: str = ""
    ) -> None:
        self.client = AmqpClient(options)
        self._framer = Framer(2**20)
        self.said: list[Any] = []
        self.payloads: list[bytes] = []
        self.client.receive(SASL_PROTOCOL + frame_of(0, SaslMechanisms((Symbol("PLAIN"), Symbol("ANONYMOUS"))), 1))
        self.client.receive(frame_of(0, SaslOutcome(0), SASL_FRAME) + PROTOCOL)
        about = {Symbol("product"): product}
        symbols = tuple(map(Symbol, offered))
        self.hear(Open("peer", max_frame_size=1024, offered_capabilities=symbols, properties=about))
        self.hear(Begin(0, 0, window, 1000))
        self._framer.feed(self.client.taken())
        assert self._framer.take_protocol() == SASL_PROTOCOL
        frame_found = self._framer.take_frame()
        assert frame_found is not None
        assert isinstance(composites.read(frame_found[2], 0)[0], SaslInit)
        assert self._framer.take_protocol() == PROTOCOL
        self.look()

    def hear(self, performative: object) -> list[ClientEvent]:
        return self.client.receive(frame_of(0, performative))

    def look(self) -> list[Any]:
        """What the client has said since."""
        self._framer.feed(self.client.taken())
        found = []
        while (one := self._framer.take_frame()) is not None:
            value, end = composites.read(one[2], 0)
            found.append(value)
            if isinstance(value, Transfer):
                self.payloads.append(one[2][end:])
        self.said += found
        return found

    def attach_receivers(self) -> list[ClientEvent]:
        events: list[ClientEvent] = []
        for one in self.said:
            if isinstance(one, Attach) and one.role == RECEIVER:
                attach = Attach(one.name, 100 + one.handle, SENDER, source=one.source, initial_delivery_count=0)
                events += self.hear(attach)
        return events

    def attach_senders(self, credit: int = 100) -> list[ClientEvent]:
        events: list[ClientEvent] = []
        for one in self.look():
            if isinstance(one, Attach) and one.role == SENDER:
                events += self.hear(Attach(one.name, one.handle, RECEIVER, target=one.target))
                events += self.hear(Flow(0, 1000, 0, 1000, one.handle, 0, credit))
        return events


def test_it_is_ready_when_its_receivers_are_attached_and_have_credit() -> None:
    peer = Peer()
    attach = next(one for one in peer.said if isinstance(one, Attach))
    assert attach.source == Source("in", 2, "never", capabilities=(Symbol("topic"),))
    assert peer.attach_receivers() == [Ready()]
    flow = peer.look()[-1]
    assert (flow.link_credit, flow.delivery_count) == (CREDIT, 0)


def test_a_delivery_in_parts_is_whole_once_and_is_settled_when_it_is_accepted() -> None:
    peer = Peer()
    peer.attach_receivers()
    first = frame(0, transfer_body(100, 0, b"t", False, True) + b"ab")
    assert peer.client.receive(first) == []
    rest = frame(0, composites.write(Transfer(100, more=False)) + b"c")
    assert peer.client.receive(rest) == [Delivered(b"abc", "in", 0)]
    for number in (1, 2):
        peer.client.receive(frame(0, transfer_body(100, number, b"t", False, False) + b"x"))
    peer.look()
    for number in (2, 0, 1):
        peer.client.accept(number)
    peer.client.accept(1)
    assert peer.look() == [Disposition(RECEIVER, 0, 2, True, Accepted())]


def test_credit_is_bounded_by_what_is_not_settled() -> None:
    peer = Peer()
    peer.attach_receivers()
    peer.look()
    for number in range(CREDIT):
        peer.client.receive(frame(0, transfer_body(100, number, b"t", False, False) + b"x"))
    assert peer.look() == []
    with pytest.raises(AmqpError, match="without credit"):
        peer.client.receive(frame(0, transfer_body(100, CREDIT, b"t", False, False) + b"x"))
    for number in range(CREDIT // 2):
        peer.client.accept(number)
    assert peer.look()[0].link_credit == CREDIT // 2


def test_a_message_waits_for_credit_and_for_the_window_and_is_sent_when_it_is_accepted() -> None:
    peer = Peer(window=1)
    assert peer.client.send(7, "to/1", b"x" * 1500, False) == []
    assert peer.attach_senders(credit=0) == []
    assert peer.look() == []
    assert peer.hear(Flow(0, 1, 0, 1000, 1, 0, 5)) == []
    assert [one.more for one in peer.look()] == [True]
    peer.hear(Flow(1, 1, 0, 1000))
    assert [one.more for one in peer.look()] == [False]
    assert b"".join(peer.payloads) == b"x" * 1500
    assert peer.hear(Disposition(RECEIVER, 0, 0, True, Accepted())) == [Sent(7)]


@pytest.mark.parametrize(
    ("outcome", "product", "is_final"),
    [
        (Rejected(Error(Symbol("amqp:x"), "no")), "", True),
        (Released(), "", False),
        (Released(), "RabbitMQ", True),
    ],
)
def test_an_outcome_says_whether_to_try_again(outcome: object, product: str, is_final: bool) -> None:
    peer = Peer(product=product)
    peer.client.send(7, "to/1", b"x", False)
    peer.attach_senders()
    events = peer.hear(Disposition(RECEIVER, 0, None, True, outcome))
    assert [(one.number, one.is_final) for one in events if isinstance(one, NotSent)] == [(7, is_final)]


def test_what_was_sent_on_a_link_that_is_refused_is_not_lost() -> None:
    peer = Peer()
    peer.client.send(1, "to/1", b"x", False)
    peer.attach_senders(credit=1)
    peer.client.send(2, "to/1", b"x", False)
    events = peer.hear(Detach(1, True, Error(Symbol("amqp:not-found"), "gone")))
    assert [(one.number, one.is_final) for one in events if isinstance(one, NotSent)] == [(1, False), (2, False)]
    peer.client.send(3, "to/1", b"x", False)
    assert any(isinstance(one, Attach) for one in peer.look())


def test_links_are_reused_when_there_are_more_addresses_than_links() -> None:
    peer = Peer()
    for number in range(LINKS_MAX + 1):
        peer.client.send(number, f"to/{number}", b"x", False)
    assert peer.attach_senders() == []
    assert not any(one.name.endswith(f"/{LINKS_MAX}") for one in peer.said if isinstance(one, Attach))
    peer.look()
    assert len(peer.hear(Disposition(RECEIVER, 0, LINKS_MAX - 1, True, Accepted()))) == LINKS_MAX
    detach = peer.look()[-1]
    assert isinstance(detach, Detach)
    peer.hear(Detach(detach.handle, True))
    attach = peer.look()[-1]
    assert (attach.handle, attach.target.address) == (detach.handle, f"to/{LINKS_MAX}")


def test_several_gateways_need_shared_subscriptions_or_a_queue() -> None:
    with pytest.raises(AmqpError, match="several gateways to it need `queue`"):
        Peer(OPTIONS._replace(group="both"))
    shared = Peer(OPTIONS._replace(group="both"), offered=("SHARED-SUBS",))
    attach = next(one for one in shared.said if isinstance(one, Attach))
    assert isinstance(attach.source, Source)
    assert attach.source.capabilities == ("topic", "shared", "global")
    queue = Peer(OPTIONS._replace(group="both", receivers=(Receiver("q", None),)))
    attach = next(one for one in queue.said if isinstance(one, Attach))
    assert attach.source == Source("q", capabilities=(Symbol("queue"),))


def test_the_reason_of_the_broker_is_told() -> None:
    with pytest.raises(AmqpError, match="closed the connection: for maintenance"):
        Peer().hear(Close(Error(Symbol("amqp:connection:forced"), "for maintenance")))
    peer = Peer()
    attach = next(one for one in peer.said if isinstance(one, Attach))
    peer.hear(Attach(attach.name, 0, SENDER, target=Target()))
    with pytest.raises(AmqpError, match="sends no messages of in: no such"):
        peer.hear(Detach(0, True, Error(Symbol("amqp:not-found"), "no such")))
    with pytest.raises(AmqpError, match="PLAIN is needed"):
        AmqpClient(OPTIONS._replace(user="u")).receive(
            SASL_PROTOCOL + frame_of(0, SaslMechanisms((Symbol("ANONYMOUS"),)), SASL_FRAME)
        )


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_whatever_a_broker_says_is_understood_or_ends_the_connection(bodies: list[bytes]) -> None:
    peer = Peer()
    peer.attach_receivers()
    try:
        for body in bodies:
            peer.client.receive(frame(0, body))
    except AmqpError:
        pass


def test_names_are_addresses_and_back() -> None:
    dots = Addresses("/topic/{}", "dots")
    assert dots.of("a/b.c/%") == "/topic/a.b%2Ec.%25"
    assert dots.name("/topic/a.b%2Ec.%25") == "a/b.c/%"
    assert dots.of("a/+/#") == "/topic/a.*.#"
    assert dots.name("a.b") == "a/b"
    assert Addresses("{}", "slashes").name("topic://a/b") == "a/b"


def test_the_topic_of_a_message_is_the_first_that_a_rule_has() -> None:
    dots = Addresses("/topic/{}", "dots")
    assert chosen_name(("x.y", "from.1"), dots, ("from/#",), None) == "from/1"
    assert chosen_name(("x.y",), dots, ("from/#",), "from/#") is None
    assert chosen_name((), dots, ("from/1",), "from/1") == "from/1"


def test_a_message_is_the_same_on_its_way_back() -> None:
    message = BridgedMessage(
        "t", b"\xff", 1, True, 30, "text/plain", "r/1", b"\x01", properties=(("a", "b"), ("overlane-via", "g"))
    )
    content = read_content(write_content(message, "/topic/t", "r/1"))
    assert content.told[-1] == "/topic/t"
    found = content.message("t", content.values.response_topic, 1)
    kept = tuple(pair for pair in found.properties if pair[0] != EXTRAS)  # the address, for AMQP readers
    assert replace(found, properties=kept) == message
    # A message of AMQP that goes on to another broker has the addresses of that one.
    again = read_content(write_content(found, "/topic/u", "q/1"))
    assert (again.told[-1], again.values.response_topic) == ("/topic/u", "q/1")


def test_messages_that_differ_in_one_thing_are_written_and_read_each_as_it_is() -> None:
    """What repeats is kept: it must not be taken for something else."""
    one = BridgedMessage("t", b"1", 1, False, None, "text/plain", None, None, properties=(("a", "b"),))
    others = [
        replace(one, body=b"2"),
        replace(one, retain=True),
        replace(one, expiry_s=7),
        replace(one, expiry_s=2**31),
        replace(one, content_type=None),
        replace(one, correlation_data=b"\x01"),
        replace(one, properties=(("a", "c"),)),
        replace(one, properties=(("a", "x" * 2_000),)),
    ]
    for _ in range(2):
        for message in (one, *others):
            found = read_content(write_content(message, "t", None)).message("t", None, 1)
            properties = tuple(pair for pair in found.properties if pair[0] != EXTRAS)
            longest = None if message.expiry_s is None else min(message.expiry_s, -(-TTL_MS_MAX // 1_000))
            assert replace(found, properties=properties) == replace(message, expiry_s=longest)
