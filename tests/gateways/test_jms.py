"""JMS: programs on ActiveMQ and MQTT clients reach each other by a gateway; what JMS promises, where it is spoken."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gatewayprocess import GatewayProcess, gateway_table, state_of
from jms import AUTO_ACKNOWLEDGE, CLIENT_ACKNOWLEDGE, QPID_JMS, RECEIVE_MS, ActiveMq, has_activemq, java_machine

from brokers import Overlane, free_port
from overlane.client import connect

WITHIN_S = 60.0
COUNT = 20

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_activemq(), reason="no Java, or no ActiveMQ: scripts/setup unpacks it"),
]


# A gateway to ActiveMQ


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java_machine() as machine:
        yield machine


def test_a_program_of_jms_and_mqtt_clients_reach_each_other_by_a_gateway(jvm: Any, tmp_path: Path) -> None:
    activemq = ActiveMq(jvm)
    ours = Overlane(tmp_path)
    rules = (
        'overlay = "plant/in/#"\nlocal = "from/#"\ndirection = "in"',
        'overlay = "plant/out/#"\nlocal = "to/#"\ndirection = "out"',
    )
    to = f"mqtt://127.0.0.1:{activemq.mqtt_port}"
    ours.say(gateway_table("depot", to, *rules, more='version = "3.1.1"\nbacklog_rate = "none"'))
    gateway = GatewayProcess(ours, "depot")
    program = activemq.connect()
    program.start()
    session = program.createSession(False, AUTO_ACKNOWLEDGE)
    consumer = session.createConsumer(session.createTopic("to.>"))
    producer = session.createProducer(session.createTopic("from.hall.1"))

    async def story() -> None:
        async with asyncio.timeout(WITHIN_S):
            while (await state_of(ours, "depot")).state != "up":
                await asyncio.sleep(0.1)
            async with connect(ours.address) as client, client.subscribe("plant/in/#", qos=1) as arrived:
                for number in range(COUNT):
                    producer.send(session.createTextMessage(f"é {number}"))
                    await client.publish("plant/out/hall/2", str(number), qos=1)
                got = [await anext(arrived) for _ in range(COUNT)]
        assert [(one.topic, one.text) for one in got] == [("plant/in/hall/1", f"é {n}") for n in range(COUNT)]

    try:
        ours.start()
        gateway.start()
        asyncio.run(story())
        for number in range(COUNT):
            message = consumer.receive(RECEIVE_MS)
            content = bytes(message.getContent().getData())  # a BytesMessage
            assert content.endswith(str(number).encode())
            assert message.getJMSDestination().getTopicName() == "to.hall.2"
        assert consumer.receiveNoWait() is None
    finally:
        program.close()
        gateway.kill()
        ours.kill()
        activemq.stop()


# What JMS promises, at ActiveMQ, whose client and broker are the measure, and at Overlane with Apache Qpid JMS


class Jms:
    def __init__(self, connect: Callable[[], Any], separator: str) -> None:
        self.connect = connect
        self._separator = separator

    def name(self, *levels: str) -> str:
        return self._separator.join(levels)


@pytest.fixture(scope="module", params=["activemq", "overlane"] if QPID_JMS else ["activemq"])
def provider(request: pytest.FixtureRequest, jvm: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jms]:
    if request.param == "activemq":
        activemq = ActiveMq(jvm)
        yield Jms(activemq.connect, ".")
        activemq.stop()
        return
    port = free_port()
    broker = Overlane(tmp_path_factory.mktemp("jms"), endpoints=f'amqp = "127.0.0.1:{port}"\n')
    broker.start()
    with java_machine(QPID_JMS) as machine:
        factory = machine.org.apache.qpid.jms.JmsConnectionFactory(f"amqp://127.0.0.1:{port}")
        yield Jms(factory.createConnection, "/")
    broker.kill()


@pytest.fixture
def connection(provider: Jms) -> Iterator[Any]:
    made = provider.connect()
    made.setClientID("press")
    made.start()
    yield made
    made.close()


def texts(consumer: Any, count: int) -> list[str]:
    """So many, and no more: all have come, since the last one was sent last."""
    return [consumer.receive(RECEIVE_MS).getText() for _ in range(count)]


def test_headers_and_properties_arrive_with_their_types(provider: Jms, connection: Any) -> None:
    session = connection.createSession(False, AUTO_ACKNOWLEDGE)
    topic = session.createTopic(provider.name("jms", "typed"))
    consumer, producer = session.createConsumer(topic), session.createProducer(topic)
    sent = session.createTextMessage("é")
    sent.setIntProperty("floor", 3)
    sent.setLongProperty("serial", 2**40)
    sent.setBooleanProperty("hot", True)
    sent.setDoubleProperty("load", 0.5)
    sent.setStringProperty("site", "lab")
    sent.setJMSType("reading")
    sent.setJMSCorrelationID("request-1")
    sent.setJMSReplyTo(session.createTopic(provider.name("jms", "answers")))
    producer.send(sent, 2, 7, 60_000)
    got = consumer.receive(RECEIVE_MS)
    assert got.getText() == "é"
    assert (got.getIntProperty("floor"), got.getLongProperty("serial")) == (3, 2**40)
    assert (got.getBooleanProperty("hot"), got.getDoubleProperty("load")) == (True, 0.5)
    assert (got.getStringProperty("site"), got.getJMSType()) == ("lab", "reading")
    assert (got.getJMSCorrelationID(), got.getJMSMessageID()) == ("request-1", sent.getJMSMessageID())
    assert (got.getJMSDeliveryMode(), got.getJMSPriority(), got.getJMSRedelivered()) == (2, 7, False)
    assert got.getJMSReplyTo().getTopicName() == provider.name("jms", "answers")
    assert got.getJMSExpiration() > got.getJMSTimestamp() > 0


def test_messages_of_all_kinds_arrive_as_what_they_are(provider: Jms, connection: Any) -> None:
    session = connection.createSession(False, AUTO_ACKNOWLEDGE)
    topic = session.createTopic(provider.name("jms", "kinds"))
    consumer, producer = session.createConsumer(topic), session.createProducer(topic)
    values = session.createMapMessage()
    values.setInt("floor", 3)
    octets = session.createBytesMessage()
    octets.writeInt(7)
    stream = session.createStreamMessage()
    stream.writeString("one")
    for message in (values, octets, stream, session.createMessage()):
        producer.send(message)
    assert consumer.receive(RECEIVE_MS).getInt("floor") == 3
    assert consumer.receive(RECEIVE_MS).readInt() == 7
    assert consumer.receive(RECEIVE_MS).readString() == "one"
    assert consumer.receive(RECEIVE_MS).getJMSDestination().getTopicName() == provider.name("jms", "kinds")


def test_a_selector_and_no_local_choose(provider: Jms, connection: Any) -> None:
    session = connection.createSession(False, AUTO_ACKNOWLEDGE)
    topic = session.createTopic(provider.name("jms", "chosen"))
    chosen = session.createConsumer(topic, "floor > 2 AND site LIKE 'lab%'")
    others = session.createConsumer(topic, None, True)
    producer = session.createProducer(topic)
    for floor, site in ((3, "hall"), (2, "lab"), (3, "lab 1")):
        message = session.createTextMessage(f"{site} {floor}")
        message.setIntProperty("floor", floor)
        message.setStringProperty("site", site)
        producer.send(message)
    assert texts(chosen, 1) == ["lab 1 3"]
    elsewhere = provider.connect()
    there = elsewhere.createSession(False, AUTO_ACKNOWLEDGE)
    there.createProducer(topic).send(there.createTextMessage("from elsewhere"))
    assert texts(others, 1) == ["from elsewhere"]
    elsewhere.close()


def test_a_durable_subscription_is_kept_until_it_is_ended(provider: Jms, connection: Any) -> None:
    session = connection.createSession(False, AUTO_ACKNOWLEDGE)
    topic = session.createTopic(provider.name("jms", "durable"))
    producer = session.createProducer(topic)
    session.createDurableSubscriber(topic, "night").close()
    producer.send(session.createTextMessage("kept"))
    again = session.createDurableSubscriber(topic, "night")
    assert texts(again, 1) == ["kept"]
    again.close()
    producer.send(session.createTextMessage("forgotten"))
    session.unsubscribe("night")
    anew = session.createDurableSubscriber(topic, "night")
    producer.send(session.createTextMessage("new"))
    assert texts(anew, 1) == ["new"]
    anew.close()
    session.unsubscribe("night")


def test_a_queue_delivers_again_what_is_not_acknowledged(provider: Jms, connection: Any) -> None:
    session = connection.createSession(False, CLIENT_ACKNOWLEDGE)
    queue = session.createQueue(provider.name("jms", "orders"))
    producer = session.createProducer(queue)
    for number in range(3):
        producer.send(session.createTextMessage(str(number)))
    consumer = session.createConsumer(queue)
    assert texts(consumer, 2) == ["0", "1"]
    session.recover()
    first = consumer.receive(RECEIVE_MS)
    assert (first.getText(), first.getJMSRedelivered()) == ("0", True)
    assert texts(consumer, 2) == ["1", "2"]
    first.acknowledge()
    consumer.close()


def test_a_request_is_answered_by_a_temporary_queue(provider: Jms, connection: Any) -> None:
    session = connection.createSession(False, AUTO_ACKNOWLEDGE)
    topic = session.createTopic(provider.name("jms", "requests"))
    server, client = session.createConsumer(topic), session.createProducer(topic)
    answers = session.createTemporaryQueue()
    consumer = session.createConsumer(answers)
    question = session.createTextMessage("how many?")
    question.setJMSReplyTo(answers)
    client.send(question)
    got = server.receive(RECEIVE_MS)
    answer = session.createTextMessage("seven")
    answer.setJMSCorrelationID(got.getJMSMessageID())
    replier = session.createProducer(None)
    replier.send(got.getJMSReplyTo(), answer)
    found = consumer.receive(RECEIVE_MS)
    assert (found.getText(), found.getJMSCorrelationID()) == ("seven", question.getJMSMessageID())
