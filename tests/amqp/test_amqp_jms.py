"""JMS over AMQP 1.0 as OASIS maps it (AMQP JMS Mapping): what Apache Qpid JMS asks of a broker, said by Proton.

Where Qpid JMS itself is at hand, tests/gateways/test_jms.py runs it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from proton_clients import proton

from brokers import Overlane, free_port
from waiting import WITHIN_S

proton_core: Any = proton()
utils: Any = proton("proton.utils")
reactor: Any = proton("proton.reactor")

Message, Terminus, symbol, byte = proton_core.Message, proton_core.Terminus, proton_core.symbol, proton_core.byte
SELECTOR, NO_LOCAL = symbol("apache.org:selector-filter:string"), symbol("apache.org:no-local-filter:list")
DESIRED = proton_core.Array(
    proton_core.UNDESCRIBED,
    proton_core.Data.SYMBOL,
    *map(symbol, ("sole-connection-for-container", "DELAYED_DELIVERY", "ANONYMOUS-RELAY", "SHARED-SUBS")),
)
TOPIC, QUEUE = "topic", "queue"
TEXT, MAP, STREAM, OCTETS, PLAIN = (byte(kind) for kind in (5, 2, 4, 3, 0))
"""Values of x-opt-jms-msg-type."""


class Consumer(reactor.ReceiverOption):  # type: ignore[misc]
    """The source of a consumer."""

    def __init__(self, kind: str, *, durable: bool = False, selector: str = "", no_local: bool = False) -> None:
        self._kind, self._durable = kind, durable
        self._filters = {}
        if selector:
            self._filters[symbol("jms-selector")] = proton_core.Described(SELECTOR, selector)
        if no_local:
            self._filters[symbol("no-local")] = proton_core.Described(NO_LOCAL, [])

    def apply(self, receiver: Any) -> None:
        source = receiver.source
        source.capabilities.put_array(False, proton_core.Data.SYMBOL)
        source.capabilities.enter()
        source.capabilities.put_symbol(self._kind)
        source.capabilities.exit()
        if self._filters:
            source.filter.put_dict(self._filters)
        if self._durable:
            source.durability = Terminus.DELIVERIES
            source.expiry_policy = Terminus.EXPIRE_NEVER


class Unsubscribe(reactor.ReceiverOption):  # type: ignore[misc]
    def apply(self, receiver: Any) -> None:
        receiver.source.type = Terminus.UNSPECIFIED


class Program:
    """A connection with a client identifier, and one session."""

    def __init__(self, port: int, client_id: str) -> None:
        container = reactor.Container()
        container.container_id = client_id
        self.connection = utils.BlockingConnection(
            f"amqp://127.0.0.1:{port}", timeout=WITHIN_S, container=container, desired_capabilities=DESIRED
        )

    def consume(self, address: str, name: str | None = None, **source: Any) -> Any:
        kind = source.pop("kind", TOPIC)
        return self.connection.create_receiver(address, credit=100, name=name, options=Consumer(kind, **source))

    def send(self, address: str, *messages: Any) -> None:
        sender = self.connection.create_sender(address)
        for message in messages:
            sender.send(message)
        sender.close()


def bodies(consumer: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        found.append(consumer.receive(timeout=WITHIN_S).body)
        consumer.accept()
    return found


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    number = free_port()
    broker = Overlane(tmp_path_factory.mktemp("jms"), endpoints=f'amqp = "127.0.0.1:{number}"\n')
    broker.start()
    yield number
    broker.kill()


@contextmanager
def program(port: int, client_id: str = "press") -> Iterator[Program]:
    one = Program(port, client_id)
    try:
        yield one
    finally:
        one.connection.close()


def test_a_connection_is_offered_what_holds(port: int) -> None:
    with program(port) as one:
        offered = {str(name) for name in one.connection.conn.remote_offered_capabilities}
        assert offered == {"sole-connection-for-container", "ANONYMOUS-RELAY", "SHARED-SUBS"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (TEXT, "text é"),
        (OCTETS, b"\0\xff"),
        (MAP, {"floor": 3, "load": 0.5}),
        (STREAM, ["one", 2]),
        (PLAIN, None),
    ],
)
def test_a_message_arrives_with_its_headers_properties_and_kind(port: int, kind: object, body: object) -> None:
    sent = Message(
        body=body,
        inferred=isinstance(body, bytes | list),
        id="ID:1",
        durable=True,
        priority=7,
        ttl=60.0,
        address="jms/typed",
        subject="reading",
        reply_to="jms/answers",
        correlation_id="ID:0",
        creation_time=1_700_000_000.0,
        group_id="line 1",
        group_sequence=4,
        properties={"floor": proton_core.int32(3), "serial": 2**40, "hot": True, "load": 0.5, "site": "lab"},
        annotations={
            symbol("x-opt-jms-msg-type"): kind,
            symbol("x-opt-jms-dest"): byte(1),
            symbol("x-opt-jms-reply-to"): byte(1),
        },
    )
    with program(port) as one:
        consumer = one.consume("jms/typed")
        one.send("jms/typed", sent)
        got = consumer.receive(timeout=WITHIN_S)
        consumer.accept()
    names = "body id durable priority address subject reply_to correlation_id creation_time group_id group_sequence"
    assert {name: getattr(got, name) for name in names.split()} == {name: getattr(sent, name) for name in names.split()}
    assert got.properties == sent.properties
    assert {name: type(value) for name, value in got.properties.items()} == {
        name: type(value) for name, value in sent.properties.items()
    }
    annotations = {str(name): value for name, value in got.annotations.items() if "jms" in str(name)}
    assert annotations == {"x-opt-jms-msg-type": kind, "x-opt-jms-dest": 1, "x-opt-jms-reply-to": 1}
    assert 0 < got.ttl <= 60.0


def test_a_selector_and_no_local_choose(port: int) -> None:
    with program(port) as one, program(port, "other") as other:
        consumer = one.consume("jms/chosen", selector="floor > 2", no_local=True)
        messages = [Message(body=str(floor), properties={"floor": floor}) for floor in (2, 3)]
        one.send("jms/chosen", *messages)
        other.send("jms/chosen", *messages)
        assert bodies(consumer, 1) == ["3"]
        other.send("jms/chosen", Message(body="end", properties={"floor": 9}))
        assert bodies(consumer, 1) == ["end"]


def test_a_durable_subscription_is_kept_until_it_is_ended(port: int) -> None:
    with program(port) as one:
        one.consume("jms/durable", "night", durable=True, no_local=True).link.detach()
    with program(port, "other") as other:
        other.send("jms/durable", Message(body="kept"))
    with program(port) as one:
        one.send("jms/durable", Message(body="own"))
        again = one.consume("jms/durable", "night", durable=True, no_local=True)
        assert bodies(again, 1) == ["kept"]
        again.link.detach()
    with program(port) as one:
        # As `unsubscribe` does: look it up by name, without a source, and close it.
        shown = one.connection.create_receiver(None, name="night", options=Unsubscribe())
        assert shown.link.remote_source.address == "jms/durable"
        shown.close()
        with pytest.raises(utils.LinkDetached, match="not-found"):
            one.connection.create_receiver(None, name="night", options=Unsubscribe())


def test_a_session_with_transactions_is_refused(port: int) -> None:
    with program(port) as one, pytest.raises(utils.LinkDetached, match="not-implemented"):
        one.connection.create_sender(None, options=Transactions())


class Transactions(reactor.SenderOption):  # type: ignore[misc]
    def apply(self, sender: Any) -> None:
        sender.target.type = Terminus.COORDINATOR


def test_a_request_is_answered_by_a_temporary_queue(port: int) -> None:
    with program(port) as one, program(port, "server") as server:
        questions = server.consume("jms/requests")
        # A sender with a dynamic target makes the queue, a consumer reads from its address.
        temporary = one.connection.create_sender(None, options=Temporary())
        address = temporary.link.remote_target.address
        answers = one.consume(address, kind="temporary-queue")
        one.send("jms/requests", Message(body="how many?", id="ID:7", reply_to=address))
        question = questions.receive(timeout=WITHIN_S)
        questions.accept()
        relay = server.connection.create_sender(None)
        relay.send(Message(body="seven", address=question.reply_to, correlation_id=question.id))
        answer = answers.receive(timeout=WITHIN_S)
        answers.accept()
        assert (answer.body, answer.correlation_id) == ("seven", "ID:7")


class Temporary(reactor.SenderOption):  # type: ignore[misc]
    def apply(self, sender: Any) -> None:
        sender.target.dynamic = True
        sender.target.expiry_policy = Terminus.EXPIRE_WITH_LINK
        sender.target.capabilities.put_symbol("temporary-queue")
