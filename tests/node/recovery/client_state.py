"""All that a broker keeps for clients, brought about before its host is lost, and looked for at the host that continues
it. One round for each loss; the sessions are those of the first."""

from dataclasses import dataclass, field
from typing import TypeVar
from urllib.request import Request, urlopen

import mqtt5
import msgspec

from overlane.adminapi.views.streams import StreamMessagePage
from waiting import WITHIN_S
from watched import Caller, Packet

Other = TypeVar("Other", bound=mqtt5.Packet)

KEPT_S = 3_600
WILL_DELAY_S = 3


@dataclass
class At:
    """Where the broker is."""

    port: int
    admin: str


@dataclass
class ClientState:
    round: int = 0
    retained: bytes = b""
    logged: list[bytes] = field(default_factory=list)
    """What the stream has to have."""
    dying: list[Caller] = field(default_factory=list)
    released: int = 0
    """The message of QoS 2 to a client of which PUBREC was sent, and PUBREL received."""
    unanswered: int = 0
    """The next one, of which nothing was sent."""

    def prepare(self, at: At) -> None:
        self.round += 1
        text = b"%d" % self.round
        request(at.admin, "PUT", "/streams/log?filter=log/%23")
        for name, topic, qos in (("absent", "queue/#", 2), ("heir", "will/#", 1)):
            with self._come(at, name) as caller:
                assert caller.subscribe(topic, qos) == mqtt5.SubAckReasonCode(qos)
        self._leave_wills(at, text)
        with self._come(at, "publisher") as publisher:
            self.retained = text
            publisher.publish("state/now", self.retained, retain=True)
            publisher.publish("queue/once", text)
            publisher.publish("log/a", text)
            self.logged.append(text)
            self._take_half(at, publisher, text)
        with self._come(at, "writer") as writer:
            writer.send(mqtt5.PublishPacket("queue/twice", text, qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=9))
            assert writer.read(mqtt5.PubRecPacket).packet_id == 9

    def _leave_wills(self, at: At, text: bytes) -> None:
        """One client is connected until the broker is lost, and never comes again. Another has died before it."""
        for name, delay_s in (("dies-with-it", 0), ("died-before", WILL_DELAY_S)):
            caller = Caller(at.port)
            will = mqtt5.Will(f"will/{name}", payload=text, qos=mqtt5.QoS.AT_LEAST_ONCE, will_delay_interval=delay_s)
            caller.send(mqtt5.ConnectPacket(name, will=will, session_expiry_interval=KEPT_S))
            assert caller.read(mqtt5.ConnAckPacket).reason_code == mqtt5.ConnAckReasonCode.SUCCESS
            if delay_s:
                caller.close()
            else:
                self.dying.append(caller)

    def _take_half(self, at: At, publisher: Caller, text: bytes) -> None:
        with self._come(at, "taker") as taker:
            assert taker.subscribe("half/#", 2) == mqtt5.SubAckReasonCode(2)
            for body in (text + b"a", text + b"b"):
                publisher.send(mqtt5.PublishPacket("half/way", body, qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=8))
                publisher.read(mqtt5.PubRecPacket)
                publisher.send(mqtt5.PubRelPacket(8))
                publisher.read(mqtt5.PubCompPacket)
            self.released, self.unanswered = (_number(taker.read(mqtt5.PublishPacket)) for _ in range(2))
            taker.send(mqtt5.PubRecPacket(self.released))
            assert taker.read(mqtt5.PubRelPacket).packet_id == self.released

    def look(self, at: At) -> None:
        """The broker is continued there."""
        text = b"%d" % self.round
        for caller in self.dying:
            caller.close()
        self.dying.clear()
        self._finish_writing(at, text)
        with self._come(at, "absent", is_known=True) as absent:
            got = {absent_payload(absent) for _ in range(2)}
            assert got == {("queue/once", text), ("queue/twice", text)}
        with self._come(at, "taker", is_known=True) as taker:
            self._finish_taking(taker, text)
        with self._come(at, "heir", is_known=True) as heir:
            wills = {absent_payload(heir) for _ in range(2)}
            assert wills == {("will/dies-with-it", text), ("will/died-before", text)}
        with self._come(at, f"new-{self.round}") as new:
            new.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("state/#", max_qos=mqtt5.QoS.AT_LEAST_ONCE)]))
            message, _ = _two(new, mqtt5.PublishPacket, mqtt5.SubAckPacket)
            assert message.payload == self.retained
        read = msgspec.json.decode(request(at.admin, "GET", "/streams/log/messages?from=0"), type=StreamMessagePage)
        assert [(one.offset, one.payload) for one in read.messages] == list(enumerate(self.logged))

    def _finish_writing(self, at: At, text: bytes) -> None:
        """It does not know whether its message has come, sends it again, and releases it."""
        with self._come(at, "writer", is_known=True) as writer:
            again = mqtt5.PublishPacket("queue/twice", text, qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=9, duplicate=True)
            writer.send(again)
            assert writer.read(mqtt5.PubRecPacket).packet_id == 9
            writer.send(mqtt5.PubRelPacket(9))
            assert writer.read(mqtt5.PubCompPacket).packet_id == 9

    def _finish_taking(self, taker: Caller, text: bytes) -> None:
        """The first message is not sent again, only released; the second comes again under its number."""
        message, release = _two(taker, mqtt5.PublishPacket, mqtt5.PubRelPacket)
        assert release.packet_id == self.released
        assert (message.packet_id, message.payload, message.duplicate) == (self.unanswered, text + b"b", True)
        taker.send(mqtt5.PubCompPacket(self.released), mqtt5.PubRecPacket(self.unanswered))
        assert taker.read(mqtt5.PubRelPacket).packet_id == self.unanswered
        taker.send(mqtt5.PubCompPacket(self.unanswered))

    def _come(self, at: At, name: str, *, is_known: bool = False) -> Caller:
        caller = Caller(at.port)
        answer = caller.connect(name, expiry_s=KEPT_S)
        assert answer.reason_code == mqtt5.ConnAckReasonCode.SUCCESS
        assert answer.session_present or not is_known, f"{name} is not known any more"
        return caller


def absent_payload(caller: Caller) -> tuple[str, bytes | None]:
    """Of the next message, which is acknowledged in full."""
    message = caller.read(mqtt5.PublishPacket)
    number = _number(message)
    if message.qos == mqtt5.QoS.EXACTLY_ONCE:
        caller.send(mqtt5.PubRecPacket(number))
        assert caller.read(mqtt5.PubRelPacket).packet_id == number
        caller.send(mqtt5.PubCompPacket(number))
    else:
        caller.send(mqtt5.PubAckPacket(number))
    return message.topic, message.payload


def _two(caller: Caller, kind: type[Packet], other: type[Other]) -> tuple[Packet, Other]:
    """The next two packets, in whatever order they come."""
    one, next_one = sorted((caller.next(), caller.next()), key=lambda packet: isinstance(packet, other))
    assert isinstance(one, kind)
    assert isinstance(next_one, other)
    return one, next_one


def _number(message: mqtt5.PublishPacket) -> int:
    assert message.packet_id is not None
    return message.packet_id


def request(admin: str, method: str, path: str) -> bytes:
    with urlopen(Request(f"http://{admin}{path}", method=method), timeout=WITHIN_S) as answer:
        content: bytes = answer.read()
    return content
