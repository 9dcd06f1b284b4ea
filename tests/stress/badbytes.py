"""Bytes that are almost MQTT: packets that were right, then changed, cut, glued and lengthened as chance wants it.

Everything follows from the luck that is handed in, so a seed repeats what it found.
"""

from collections.abc import Callable
from random import Random

import mqtt5

from overlane.mqtt.codec import codec5, codec311

TOPICS = (
    "a",
    "a/b",
    "bad/bytes/topic",
    "$SYS/uptime",
    "$share/g/a",
    "+/b",
    "#",
    "a/#/b",
    "",
    "x" * 300,
    "é/ü/\U0001f600",
)
CLIENTS = ("", "m", "mallory", "mallory-2", "x" * 300)
NOTABLE = (0, 1, 0x10, 0x26, 0x30, 0x7F, 0x80, 0xC0, 0xED, 0xFE, 0xFF)
CHANGES_MAX = 4
PACKETS_MAX = 12

QOS = tuple(mqtt5.QoS(number) for number in range(3))


class BadBytes:
    def __init__(self, luck: Random) -> None:
        self._luck = luck
        self._makers: tuple[Callable[[], mqtt5.Packet], ...] = (
            self.connect,
            self._publish,
            self._publish,
            self._publish,
            self._subscribe,
            self._subscribe,
            self._unsubscribe,
            lambda: mqtt5.PubAckPacket(self._id()),
            lambda: mqtt5.PubRecPacket(self._id()),
            lambda: mqtt5.PubRelPacket(self._id()),
            lambda: mqtt5.PubCompPacket(self._id()),
            mqtt5.PingReqPacket,
            lambda: mqtt5.DisconnectPacket(session_expiry_interval=self._luck.choice((None, 0, 60))),
            lambda: mqtt5.AuthPacket(authentication_method="magic", authentication_data=b"abc"),
            lambda: mqtt5.ConnAckPacket(session_present=True),
            lambda: mqtt5.SubAckPacket(self._id(), [mqtt5.SubAckReasonCode(0)]),
            mqtt5.PingRespPacket,
        )

    def conversation(self) -> list[bytes]:
        """What one client says, in the pieces in which it says it."""
        luck = self._luck
        version = luck.choice((4, 5))
        match luck.randrange(10):
            case 0:
                said = b""
            case 1:
                said = self.written(self.connect(), version)
            case 2:
                said = self.spoilt(self.written(self.connect(), version))
            case _:
                said = self.written(self._welcome(), version)
        for _ in range(luck.randrange(PACKETS_MAX)):
            said += self.something(version)
        return self.pieces(said)

    def something(self, version: int) -> bytes:
        """A packet that is right, or no longer, or never was one."""
        luck = self._luck
        chance = luck.random()
        if chance < 0.05:
            return luck.randbytes(luck.randrange(1, 200))
        if chance < 0.08:
            return bytes((luck.randrange(256),)) + b"\xff\xff\xff" + bytes((luck.choice((0x7F, 0xFF)),))
        packet = self.written(luck.choice(self._makers)(), version if luck.random() < 0.95 else 9 - version)
        return self.spoilt(packet) if luck.random() < 0.4 else packet

    def written(self, packet: mqtt5.Packet, version: int) -> bytes:
        try:
            return codec5.write(packet) if version == 5 else codec311.write(packet)
        except ValueError:  # not every packet can be told in 3.1.1
            return codec5.write(packet)

    def spoilt(self, packet: bytes) -> bytes:
        """With some bytes changed, put in or taken out; often with a length that fits again."""
        luck, spoilt = self._luck, bytearray(packet)
        for _ in range(luck.randrange(1, CHANGES_MAX)):
            position = luck.randrange(len(spoilt) + 1)
            match luck.randrange(5):
                case 0 if position < len(spoilt):
                    spoilt[position] = luck.choice(NOTABLE)
                case 1 if position < len(spoilt):
                    spoilt[position] ^= 1 << luck.randrange(8)
                case 2:
                    del spoilt[position : position + luck.randrange(1, 5)]
                case 3:
                    spoilt[position:position] = spoilt[: luck.randrange(1, 40)]
                case _:
                    spoilt[position:position] = luck.randbytes(luck.randrange(1, 5))
        if 2 <= len(spoilt) < 0x82 and luck.random() < 0.6:
            spoilt[1] = len(spoilt) - 2
        return bytes(spoilt)

    def pieces(self, said: bytes) -> list[bytes]:
        luck = self._luck
        if luck.random() < 0.7:
            return [said]
        cuts = sorted(luck.randrange(len(said) + 1) for _ in range(luck.randrange(1, 6)))
        return [piece for start, end in zip([0, *cuts], [*cuts, len(said)], strict=True) if (piece := said[start:end])]

    # Packets that are right, if perhaps not welcome

    def _welcome(self) -> mqtt5.ConnectPacket:
        is_kept = self._luck.random() < 0.5
        client_id = self._luck.choice(CLIENTS[1:-1])
        return mqtt5.ConnectPacket(
            client_id, clean_start=not is_kept, session_expiry_interval=0xFFFF_FFFF if is_kept else 0
        )

    def connect(self) -> mqtt5.ConnectPacket:
        luck, will = self._luck, None
        if luck.random() < 0.3:
            will = mqtt5.Will(
                luck.choice(("a", "bad/bytes/will")),
                payload=luck.randbytes(luck.randrange(50)),
                qos=luck.choice(QOS),
                retain=luck.random() < 0.3,
                will_delay_interval=luck.choice((0, 1, 100)),
            )
        expiry_s = luck.choice((0, 0, 1, 60, 0xFFFF_FFFF))
        return mqtt5.ConnectPacket(
            luck.choice(CLIENTS),
            username=luck.choice((None, None, "alice")),
            clean_start=luck.random() < 0.5,
            will=will,
            keep_alive=luck.choice((0, 1, 60, 65_535)),
            session_expiry_interval=expiry_s,
            receive_max=luck.choice((1, 10, 65_535)),
            topic_alias_max=luck.choice((0, 5, 65_535)),
            max_packet_size=luck.choice((None, 1, 100, 10_000)),
            user_properties=self._pairs(),
        )

    def _publish(self) -> mqtt5.PublishPacket:
        luck = self._luck
        qos = luck.choice(QOS)
        alias = luck.choice((None, None, 1, 2, 65_535))
        topic = luck.choice([one for one in TOPICS if not {"+", "#"} & {*one}])
        return mqtt5.PublishPacket(
            topic or ("a" if alias is None else ""),
            luck.randbytes(luck.choice((0, 1, 10, 200, 20_000))),
            qos=qos,
            retain=luck.random() < 0.2,
            packet_id=self._id() if int(qos) else None,
            topic_alias=alias,
            message_expiry_interval=luck.choice((None, 0, 1, 100)),
            response_topic=luck.choice((None, "r")),
            user_properties=self._pairs(),
        )

    def _subscribe(self) -> mqtt5.SubscribePacket:
        luck = self._luck
        return mqtt5.SubscribePacket(
            self._id(),
            [
                mqtt5.TopicFilter(
                    luck.choice(("a", "a/b", "+/b", "#", "$share/g/#", "$SYS/#", "bad/bytes/+")),
                    max_qos=luck.choice(QOS),
                    retain_as_published=luck.random() < 0.5,
                )
                for _ in range(luck.randrange(1, 4))
            ],
            subscription_id=luck.choice((None, 1, 268_435_455)),
            user_properties=self._pairs(),
        )

    def _unsubscribe(self) -> mqtt5.UnsubscribePacket:
        return mqtt5.UnsubscribePacket(self._id(), [self._luck.choice(("a", "#", "nothing"))])

    def _pairs(self) -> list[tuple[str, str]]:
        return [("name", "value")] * self._luck.choice((0, 0, 0, 1, 3, 40))

    def _id(self) -> int:
        return self._luck.choice((1, 2, 3, 77, 65_535))
