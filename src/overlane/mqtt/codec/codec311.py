"""Packets of MQTT 3.1.1: bytes to and from the packet classes of MQTT 5, so that sessions know only one kind of packet.

What 3.1.1 does not have, reads as the value of MQTT 5 that means the same, and is left out when written:

    CONNECT       a clean session ends with its connection, any other never does
    SUBSCRIBE     own messages come too; the retain flag only on messages that were retained before
    CONNACK       six return codes, each for the reasons that come nearest
    SUBACK        0x80 for every failure
    UNSUBACK, PUBACK, PUBREC, PUBREL, PUBCOMP     success, always
    DISCONNECT    from a client that leaves of its own will; nothing else can be said

Where 3.1.1 has no words at all, as for a server that ends a connection, nothing is written: the connection is just
closed. MQTT 3.1 differs in the name of the protocol only, as far as it is understood here.
"""

from collections.abc import Callable
from typing import Final, assert_never

import mqtt5

from overlane.mqtt.codec import codec5
from overlane.mqtt.codec.fields import (
    UNBOUNDED,
    Bounds,
    Buffer,
    binary,
    text,
    u16,
    variable,
    write_binary,
    write_text,
    write_variable,
)
from overlane.mqtt.codec.framing import version_of_connect
from overlane.mqtt.codec.malformed import (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    TOPIC_NAME_INVALID,
    UNSUPPORTED_PROTOCOL_VERSION,
    Malformed,
)

__all__ = ["NEVER_S", "UNBOUNDED", "Bounds", "Malformed", "read", "write"]

NEVER_S: Final = 0xFFFF_FFFF
"""The expiry interval of a session that does not expire."""

_FAILURE = 0x80
_QOS: Final = (mqtt5.QoS.AT_MOST_ONCE, mqtt5.QoS.AT_LEAST_ONCE, mqtt5.QoS.EXACTLY_ONCE)
_PROTOCOL: Final = b"\x00\x04MQTT\x04"
_FLAGS: Final = {6: 2, 8: 2, 10: 2}
"""The lower half of the first byte for PUBREL, SUBSCRIBE and UNSUBSCRIBE; 0 for the others."""

_CONNECTED = mqtt5.ConnAckReasonCode
_RETURN_CODES: Final = (
    _CONNECTED.SUCCESS,
    _CONNECTED.UNSUPPORTED_PROTOCOL_VERSION,
    _CONNECTED.CLIENT_ID_NOT_VALID,
    _CONNECTED.SERVER_UNAVAILABLE,
    _CONNECTED.BAD_USER_NAME_OR_PASSWORD,
    _CONNECTED.NOT_AUTHORIZED,
)
_NEAREST: Final = {int(reason): code for code, reason in enumerate(_RETURN_CODES)} | {
    int(_CONNECTED.UNSPECIFIED_ERROR): 3,
    int(_CONNECTED.IMPLEMENTATION_SPECIFIC_ERROR): 3,
    int(_CONNECTED.SERVER_BUSY): 3,
    int(_CONNECTED.QUOTA_EXCEEDED): 3,
    int(_CONNECTED.USE_ANOTHER_SERVER): 3,
    int(_CONNECTED.SERVER_MOVED): 3,
    int(_CONNECTED.CONNECTION_RATE_EXCEEDED): 3,
    int(_CONNECTED.BANNED): 5,
    int(_CONNECTED.BAD_AUTHENTICATION_METHOD): 5,
}
"""Other reasons have no return code, and then no CONNACK is to be sent (MQTT 3.1.1, section 3.2.2.3)."""


def read(packet: Buffer, bounds: Bounds = UNBOUNDED) -> mqtt5.Packet:
    """Exactly one whole packet."""
    try:
        first = packet[0]
        length, position = variable(packet, 1)
        if length != len(packet) - position:
            raise Malformed(MALFORMED_PACKET, "the length of the packet does not match its header")
        kind = first >> 4
        if kind == 3:
            return _read_publish(packet, first, position)
        if first & 0x0F != _FLAGS.get(kind, 0):
            raise Malformed(MALFORMED_PACKET, "invalid reserved bits of the fixed header")
        if kind in (8, 10):
            return _read_filters(bytes(packet), position, bounds)
        reader = _READERS.get(kind)
        if reader is None:
            raise Malformed(MALFORMED_PACKET, f"packets of type {kind} do not exist")
        if kind == 9 and length - 2 > bounds.filters:
            raise Malformed(QUOTA_EXCEEDED, f"an answer to more than {bounds.filters} filters")
        value, position = reader(bytes(packet), position)
    except IndexError:
        raise Malformed(MALFORMED_PACKET, "the packet ends too early") from None
    if position != len(packet):
        raise Malformed(MALFORMED_PACKET, "bytes follow the last field of the packet")
    return value


def _read_publish(packet: Buffer, first: int, position: int) -> mqtt5.PublishPacket:
    qos = first >> 1 & 0x03
    if qos == 3:
        raise Malformed(MALFORMED_PACKET, "QoS 3")
    if first & 0x0E == 0x08:
        raise Malformed(MALFORMED_PACKET, "the duplicate flag is set at QoS 0")
    topic, position = _topic(packet, position)
    packet_id = None
    if qos:
        packet_id = _packet_id(packet, position)
        position += 2
    return mqtt5.PublishPacket(
        topic,
        bytes(packet[position:]),
        qos=_QOS[qos],
        retain=bool(first & 0x01),
        packet_id=packet_id,
        duplicate=bool(first & 0x08),
    )


def _topic(packet: Buffer, position: int) -> tuple[str, int]:
    topic, position = text(packet, position)
    if not topic:
        raise Malformed(TOPIC_NAME_INVALID, "the topic is empty")
    if "+" in topic or "#" in topic:
        raise Malformed(TOPIC_NAME_INVALID, "the topic contains a wildcard")
    return topic, position


def _packet_id(packet: Buffer, position: int) -> int:
    packet_id = u16(packet, position)
    if not packet_id:
        raise Malformed(PROTOCOL_ERROR, "the packet identifier is 0")
    return packet_id


def _read_filters(packet: bytes, position: int, bounds: Bounds) -> mqtt5.Packet:
    """SUBSCRIBE or UNSUBSCRIBE, by way of MQTT 5, which has but a list of properties more behind the packet identifier.

    The classes cannot be given a filter that is not well formed, but whoever subscribes wants to see and answer it.
    """
    position += 2
    rest = packet[position - 2 : position] + b"\0" + packet[position:]
    value = codec5.read(_packet(packet[0], rest), bounds)
    if isinstance(value, mqtt5.SubscribePacket):
        for each in value.topic_filters:
            if each.no_local or each.retain_as_published or int(each.retain_handling):
                raise Malformed(MALFORMED_PACKET, "a reserved bit of the requested QoS is set")
    return value


# Each of these reads the body of a packet that begins at the position, and gives it and where the last field ends.


def _read_connect(packet: bytes, position: int) -> tuple[mqtt5.Packet, int]:
    if version_of_connect(packet) not in (3, 4):
        raise Malformed(UNSUPPORTED_PROTOCOL_VERSION, "not a CONNECT of MQTT 3.1.1")
    _, position = binary(packet, position)
    flags = packet[position + 1]
    if flags & 0x01:
        raise Malformed(MALFORMED_PACKET, "the reserved connect flag is set")
    if flags & 0xC0 == 0x40:
        raise Malformed(PROTOCOL_ERROR, "a password without a user name")
    keep_alive_s = u16(packet, position + 2)
    client_id, position = text(packet, position + 4)
    will, position = _read_will(packet, position, flags)
    username = password = None
    if flags & 0x80:
        username, position = text(packet, position)
    if flags & 0x40:
        password, position = binary(packet, position)
    is_clean = bool(flags & 0x02)
    return mqtt5.ConnectPacket(
        client_id,
        username=username,
        password=password,
        clean_start=is_clean,
        will=will,
        keep_alive=keep_alive_s,
        session_expiry_interval=0 if is_clean else NEVER_S,
    ), position


def _read_will(packet: bytes, position: int, flags: int) -> tuple[mqtt5.Will | None, int]:
    qos = flags >> 3 & 0x03
    if not flags & 0x04:
        if flags & 0x38:
            raise Malformed(MALFORMED_PACKET, "QoS or retain of a will without a will")
        return None, position
    if qos == 3:
        raise Malformed(MALFORMED_PACKET, "a will of QoS 3")
    topic, position = _topic(packet, position)
    payload, position = binary(packet, position)
    return mqtt5.Will(topic, payload=payload, qos=_QOS[qos], retain=bool(flags & 0x20)), position


def _read_connack(packet: bytes, position: int) -> tuple[mqtt5.Packet, int]:
    flags, code = packet[position], packet[position + 1]
    if flags > 1:
        raise Malformed(MALFORMED_PACKET, "a reserved acknowledge flag is set")
    if flags and code:
        raise Malformed(PROTOCOL_ERROR, "a refused connection with a session present")
    if code >= len(_RETURN_CODES):
        raise Malformed(PROTOCOL_ERROR, f"the return code {code} does not exist")
    return mqtt5.ConnAckPacket(session_present=bool(flags), reason_code=_RETURN_CODES[code]), position + 2


def _read_only_id(
    packet_class: Callable[[int], mqtt5.Packet],
) -> Callable[[bytes, int], tuple[mqtt5.Packet, int]]:
    def reader(packet: bytes, position: int) -> tuple[mqtt5.Packet, int]:
        return packet_class(_packet_id(packet, position)), position + 2

    return reader


def _read_nothing(packet_class: Callable[[], mqtt5.Packet]) -> Callable[[bytes, int], tuple[mqtt5.Packet, int]]:
    def reader(_packet: bytes, position: int) -> tuple[mqtt5.Packet, int]:
        return packet_class(), position

    return reader


def _read_suback(packet: bytes, position: int) -> tuple[mqtt5.Packet, int]:
    packet_id = _packet_id(packet, position)
    codes = packet[position + 2 :]
    if not codes:
        raise Malformed(PROTOCOL_ERROR, "an acknowledgement without return codes")
    if not set(codes) <= {0, 1, 2, _FAILURE}:
        raise Malformed(PROTOCOL_ERROR, "a return code that does not exist")
    return mqtt5.SubAckPacket(packet_id, [mqtt5.SubAckReasonCode(code) for code in codes]), len(packet)


_READERS: Final[dict[int, Callable[[bytes, int], tuple[mqtt5.Packet, int]]]] = {
    1: _read_connect,
    2: _read_connack,
    4: _read_only_id(mqtt5.PubAckPacket),
    5: _read_only_id(mqtt5.PubRecPacket),
    6: _read_only_id(mqtt5.PubRelPacket),
    7: _read_only_id(mqtt5.PubCompPacket),
    9: _read_suback,
    11: _read_only_id(lambda packet_id: mqtt5.UnsubAckPacket(packet_id, [])),
    12: _read_nothing(mqtt5.PingReqPacket),
    13: _read_nothing(mqtt5.PingRespPacket),
    14: _read_nothing(mqtt5.DisconnectPacket),
}


def write(packet: mqtt5.Packet) -> bytes:
    """Empty where 3.1.1 has no way to say it."""
    match packet:
        case mqtt5.PublishPacket():
            return _write_publish(packet)
        case mqtt5.PubAckPacket():
            return b"\x40\x02" + packet.packet_id.to_bytes(2)
        case mqtt5.PubRecPacket():
            return b"\x50\x02" + packet.packet_id.to_bytes(2)
        case mqtt5.PubRelPacket():
            return b"\x62\x02" + packet.packet_id.to_bytes(2)
        case mqtt5.PubCompPacket():
            return b"\x70\x02" + packet.packet_id.to_bytes(2)
        case mqtt5.UnsubAckPacket():
            return b"\xb0\x02" + packet.packet_id.to_bytes(2)
        case mqtt5.PingReqPacket():
            return b"\xc0\x00"
        case mqtt5.PingRespPacket():
            return b"\xd0\x00"
        case mqtt5.DisconnectPacket():
            return b"" if int(packet.reason_code) else b"\xe0\x00"
        case mqtt5.AuthPacket():
            return b""
        case _:
            return _write_dialogue(packet)


def _write_dialogue(
    packet: mqtt5.ConnectPacket
    | mqtt5.ConnAckPacket
    | mqtt5.SubscribePacket
    | mqtt5.SubAckPacket
    | mqtt5.UnsubscribePacket,
) -> bytes:
    match packet:
        case mqtt5.ConnectPacket():
            return _packet(0x10, _connect_body(packet))
        case mqtt5.ConnAckPacket():
            code = _NEAREST.get(int(packet.reason_code))
            return b"" if code is None else bytes((0x20, 2, packet.session_present, code))
        case mqtt5.SubscribePacket():
            filters = (write_text(each.pattern) + bytes((int(each.max_qos),)) for each in packet.topic_filters)
            return _packet(0x82, packet.packet_id.to_bytes(2) + b"".join(filters))
        case mqtt5.SubAckPacket():
            codes = bytes([min(int(reason), _FAILURE) for reason in packet.reason_codes])
            return _packet(0x90, packet.packet_id.to_bytes(2) + codes)
        case mqtt5.UnsubscribePacket():
            return _packet(0xA2, packet.packet_id.to_bytes(2) + b"".join(map(write_text, packet.patterns)))
        case _:
            assert_never(packet)


def _write_publish(packet: mqtt5.PublishPacket) -> bytes:
    first = 0x30 | packet.duplicate << 3 | int(packet.qos) << 1 | packet.retain
    packet_id = b"" if packet.packet_id is None else packet.packet_id.to_bytes(2)
    return _packet(first, write_text(packet.topic) + packet_id + packet.payload)


def _connect_body(packet: mqtt5.ConnectPacket) -> bytes:
    flags = packet.clean_start << 1
    fields = [write_text(packet.client_id)]
    if (will := packet.will) is not None:
        flags |= 0x04 | int(will.qos) << 3 | will.retain << 5
        fields += [write_text(will.topic), write_binary(will.payload or b"")]
    if packet.username is not None:
        flags |= 0x80
        fields.append(write_text(packet.username))
    if packet.password is not None:
        if packet.username is None:
            raise Malformed(PROTOCOL_ERROR, "MQTT 3.1.1 has no password without a user name")
        flags |= 0x40
        fields.append(write_binary(packet.password))
    return _PROTOCOL + bytes((flags,)) + packet.keep_alive.to_bytes(2) + b"".join(fields)


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + write_variable(len(body)) + body
