"""A connection: what the server knows of one MQTT client's network connection, and what it has to send to it.

It is a consumer and a publisher to the rest of the broker (`pubsub.consumer`).

Bytes to be sent are collected in `out` during a turn and taken by the driver at its end; `waits` says that they must
not leave before this turn's records are durable. What leaves a connection leaves in order.

`unsent_bytes` is how much of what was handed over still lies in the driver's buffer. The driver keeps it up to date; by
it a client that does not read is noticed. It also keeps `acks_held`, of acknowledgements that wait for the disk: by
them a client is noticed that publishes more than it may without having been answered.
"""

from collections.abc import Callable, Hashable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import mqtt5

from overlane.core.units import NEVER, SECOND, Nanos
from overlane.mqtt.codec import codec5, codec311, writing
from overlane.mqtt.codec.framing import Framer
from overlane.mqtt.read_ahead import ReadAhead
from overlane.mqtt.reasons import disconnect_reason
from overlane.pubsub.consumer import Ending, Peer
from overlane.pubsub.delivery.window import TAGS
from overlane.pubsub.limits import Limits
from overlane.pubsub.message import Message
from overlane.pubsub.timers import Timer

if TYPE_CHECKING:
    from overlane.mqtt.fast_path import TopicEntry
    from overlane.pubsub.delivery.window import Entry
    from overlane.pubsub.sessions.session import Session

V5 = 5
UNKNOWN = 0
"""The version of a client that has not said it yet."""
ERRORS = 0x80
"""Reason codes from here on are errors."""
PACE_BYTES = 64 * 1024
PACE_WITHIN: Nanos = SECOND
"""Who reads less than so much in this time does not keep reading."""


class Phase(IntEnum):
    WAITING = 0
    """For CONNECT."""
    CHECKING = 1
    """Who the client is, and which broker has its session; what it sends meanwhile is kept."""
    OPEN = 2
    CLOSED = 3
    PASSED_ON = 4
    """To the broker that has the session: nothing of it is read here."""


class Connection:
    __slots__ = (
        "_touched",
        "acks_held",
        "acks_owed",
        "acks_taken",
        "ahead",
        "aliases_in",
        "aliases_out",
        "aliases_out_max",
        "allowance",
        "allowance_ns",
        "bytes_in",
        "bytes_out",
        "closing",
        "driver",
        "entries",
        "entries_of",
        "framer",
        "heard_ns",
        "is_behind",
        "is_touched",
        "is_turned_away",
        "keep_alive_ns",
        "limits_told",
        "messages_in",
        "messages_out",
        "opened_ns",
        "out",
        "out_bytes",
        "paced_bytes",
        "paced_ns",
        "packet_bytes_max",
        "passes",
        "peer",
        "phase",
        "received_before",
        "rests_until_ns",
        "session",
        "stops_for",
        "stops_until_ns",
        "tells_problems",
        "timer",
        "unanswerable_until_ns",
        "unsent_bytes",
        "version",
        "waits",
        "waits_on",
    )

    def __init__(self, peer: Peer, limits: Limits, touched: "list[Connection]", now: Nanos) -> None:
        self.peer = peer
        self.phase = Phase.WAITING
        self.version = UNKNOWN
        self.framer = Framer(limits.packet_bytes_before_connect)
        self.session: Session | None = None
        self.ahead: ReadAhead | None = None
        """What it has sent since it has to rest, or to stop; None if it need not, or was not listened to since."""
        self.is_behind = False
        """Whether packets have come that were not looked at yet, so that others have their turn."""
        self.is_turned_away = False
        """Whether it is answered only to be told that too many connect at once."""
        self.opened_ns = now
        self.heard_ns = now
        self.keep_alive_ns: Nanos = NEVER
        """After so much silence the client counts as gone."""
        self.timer: Timer | None = None
        """When to look whether it has said CONNECT, and then whether it is silent."""
        self.received_before = 0
        """QoS 2 messages of earlier connections that were not released when this one began: they are not counted."""
        self.acks_owed = 0
        """PUBACK and PUBCOMP in `out`."""
        self.acks_taken = 0
        """Those in what was taken last."""
        self.acks_held = 0
        self.packet_bytes_max = NEVER
        """What the client takes."""
        self.tells_problems = True
        self.aliases_in: dict[int, str] | None = None
        self.aliases_out: dict[str, int] | None = None
        """None until there are any: few clients use them."""
        self.aliases_out_max = 0
        self.limits_told = limits
        """Those that CONNACK told: a client that keeps to them does nothing wrong, though they were lowered since."""
        self.entries: dict[bytes, TopicEntry] = {}
        """The topics that this client's plain messages pass on the fast path, by their bytes in a packet."""
        self.entries_of = -1
        """The state of subscriptions and rights that `entries` holds for."""
        self.allowance = 0.0
        self.allowance_ns = now
        self.rests_until_ns: Nanos = 0
        """Until then nothing more is read from a client that publishes too fast."""
        self.stops_for: Hashable = None
        """The way (`uplink.way_of`) on which its messages find no room: what it says is kept, and not looked at."""
        self.stops_until_ns: Nanos = 0
        """Until then nothing more is read from it, unless there is room again before."""
        self.unanswerable_until_ns: Nanos = 0
        self.waits_on = False
        """Whether it may be stopped for longer than that, while its way moves: nothing of it has a deadline."""
        self.passes = False
        """It has been stopped for long enough: what it says next is taken in, room or not."""
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.unsent_bytes = 0
        self.paced_bytes = 0
        """What the client had read when it was last found to have read a good deal more, and when that was."""
        self.paced_ns: Nanos = 0
        self.waits = False
        self.closing: str | None = None
        self.is_touched = False
        self._touched = touched
        self.driver: object = None
        """The driver's own end of it."""
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = 0

    @property
    def is_open(self) -> bool:
        return self.phase is Phase.OPEN

    @property
    def protocol(self) -> str:
        return "MQTT 5.0" if self.version == V5 else "MQTT 3.1.1"

    @property
    def has_more_to_say(self) -> bool:
        """Whether messages wait for room that is there now."""
        return self.session is not None and self.session.window.next_to_send() is not None

    @property
    def backlog_bytes(self) -> int:
        return self.unsent_bytes + self.out_bytes

    @property
    def waiting_bytes(self) -> int:
        """What it has sent and was not looked at yet."""
        return self.framer.waiting_bytes if self.ahead is None else self.ahead.waiting_bytes

    def may_have_more_under_way(self, session: "Session") -> bool:
        """Whether the client keeps to the receive maximum that it was told if it publishes one more message."""
        under_way = len(session.received) - self.received_before + self.acks_held
        return under_way < self.limits_told.in_flight

    def keeps_reading(self, now: Nanos) -> bool:
        """Whether the client has read a good deal lately. To be asked of one that has much left to read."""
        read_bytes = self.bytes_out - self.unsent_bytes
        if read_bytes - self.paced_bytes >= PACE_BYTES:
            self.paced_bytes, self.paced_ns = read_bytes, now
        return now - self.paced_ns < PACE_WITHIN

    # Sending

    def send(self, data: bytes) -> None:
        self.out.append(data)
        self.out_bytes += len(data)
        if not self.is_touched:
            self.is_touched = True
            self._touched.append(self)

    def send_packet(self, packet: mqtt5.Packet) -> bool:
        """False if the client does not take packets of this size (MQTT 5, section 3.1.2.11.4)."""
        data = codec5.write(packet) if self.version == V5 else codec311.write(packet)
        if len(data) > self.packet_bytes_max:
            return False
        self.send(data)
        return True

    def send_explained(self, packet: Callable[[str | None], mqtt5.Packet], told: str | None) -> bool:
        """A packet with a sentence for people, where the client wants such, and takes a packet of that size."""
        if told is not None and self.tells_problems and self.version == V5 and self.send_packet(packet(told)):
            return True
        return self.send_packet(packet(None))

    def take(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        now: Nanos,
        tag: int = 0,
        again: bool = False,
    ) -> bool:
        """A message for this client, as PUBLISH. False if the client does not take packets of this size."""
        topic = message.topic_utf8
        properties = b""
        if self.version == V5:
            properties = message.encoded
            if (remaining_s := message.remaining_s(now)) is not None:
                properties += writing.expiry_property(remaining_s)
            for identifier in identifiers:
                properties += writing.subscription_id_property(identifier)
            if self.aliases_out_max:
                if self.aliases_out is None:
                    self.aliases_out = {}
                alias = self.aliases_out.get(message.topic)
                if alias is not None:
                    topic = b""
                elif len(self.aliases_out) < self.aliases_out_max:
                    alias = self.aliases_out[message.topic] = len(self.aliases_out) + 1
                if alias is not None:
                    properties += writing.topic_alias_property(alias)
        data = writing.publish(self.version, topic, message.payload, qos, retain, again, tag, properties)
        if len(data) > self.packet_bytes_max:
            if topic and self.aliases_out is not None:
                self.aliases_out.pop(message.topic, None)
            return False
        self.messages_out += 1
        self.send(data)
        return True

    def take_run(self, entries: "Sequence[Entry]") -> bool:
        """Messages for this client, as PUBLISH packets of QoS 1."""
        version = self.version
        if self.packet_bytes_max < NEVER or self.aliases_out_max:
            return False
        pack = writing.TAG_V5 if version == V5 else writing.TAG
        pieces: list[bytes] = []
        for entry in entries:
            message, tag = entry.message, entry.sequence % TAGS + 1
            if message.head_version == version:
                pieces += (message.head, pack(tag), message.payload)
            else:
                pieces.append(writing.publish(version, message.topic_utf8, message.payload, 1, False, False, tag, b""))
        self.messages_out += len(entries)
        self.send(b"".join(pieces))
        return True

    def release(self, tag: int) -> None:
        """PUBREL."""
        self.send(writing.ack(self.version, writing.PUBREL, tag, 0))

    def taken(self) -> tuple[list[bytes], bool]:
        """What to send now, and whether it waits for this turn's records; by the driver at the end of a turn."""
        out, waits = self.out, self.waits
        self.bytes_out += self.out_bytes
        self.out, self.out_bytes, self.waits, self.is_touched = [], 0, False, False
        self.acks_taken, self.acks_owed = self.acks_owed, 0
        return out, waits

    # The end

    def end(self, ending: Ending, why: str) -> None:
        self.close(disconnect_reason(ending), why)

    def close(self, reason: int, why: str) -> None:
        """Say goodbye, with the reason where the protocol has a way to say it; the driver closes after sending."""
        if self.phase is Phase.CLOSED:
            return
        if self.phase is Phase.OPEN and self.version == V5 and reason >= 0:
            code = _disconnect_reason(reason)
            self.send_explained(
                lambda told: mqtt5.DisconnectPacket(reason_code=code, reason_str=told),
                why if reason >= ERRORS else None,
            )
        self.phase = Phase.CLOSED
        self.closing = why
        if not self.is_touched:
            self.is_touched = True
            self._touched.append(self)


def _disconnect_reason(reason: int) -> mqtt5.DisconnectReasonCode:
    """The nearest that DISCONNECT can tell."""
    try:
        return mqtt5.DisconnectReasonCode(reason)
    except ValueError:
        return mqtt5.DisconnectReasonCode.MALFORMED_PACKET
