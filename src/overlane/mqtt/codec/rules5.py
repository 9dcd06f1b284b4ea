"""The rules of MQTT 5 for each type of packet, followed field by field over the bytes.

A packet that passes is well formed: every field and property is where, and as long as, the specification has it, every
text is one, and nothing is left over. One that cannot be parsed is malformed, one that says what must not be said is a
protocol error. What may be repeated is counted on the way, so that a walk is over soon.
"""

from collections.abc import Callable
from typing import Final

import mqtt5

from overlane.mqtt.codec.fields import Bounds, Buffer, binary, text, u16, variable
from overlane.mqtt.codec.framing import version_of_connect
from overlane.mqtt.codec.malformed import (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    TOPIC_NAME_INVALID,
    UNSUPPORTED_PROTOCOL_VERSION,
    Malformed,
)
from overlane.mqtt.codec.properties import Property, check, mask

Check = Callable[[bytes, int, Bounds], int]
"""Checks the body of a packet, which begins at a position, and gives where the last field ends."""

_VERSION = 5

_MESSAGE = mask(
    Property.PAYLOAD_FORMAT_INDICATOR,
    Property.MESSAGE_EXPIRY_INTERVAL,
    Property.CONTENT_TYPE,
    Property.RESPONSE_TOPIC,
    Property.CORRELATION_DATA,
)
_AUTHENTICATION = mask(Property.AUTHENTICATION_METHOD, Property.AUTHENTICATION_DATA)
_SUBSCRIPTION_IDENTIFIER = mask(Property.SUBSCRIPTION_IDENTIFIER)
_TOPIC_ALIAS = mask(Property.TOPIC_ALIAS)
_REASON = mask(Property.REASON_STRING)

_WILL_PROPERTIES = _MESSAGE | mask(Property.WILL_DELAY_INTERVAL)
_PUBLISH_PROPERTIES = _MESSAGE | _TOPIC_ALIAS | _SUBSCRIPTION_IDENTIFIER
_DISCONNECT_PROPERTIES = _REASON | mask(Property.SESSION_EXPIRY_INTERVAL, Property.SERVER_REFERENCE)
_AUTH_PROPERTIES = _REASON | _AUTHENTICATION
_CONNECT_PROPERTIES = _AUTHENTICATION | mask(
    Property.SESSION_EXPIRY_INTERVAL,
    Property.REQUEST_PROBLEM_INFORMATION,
    Property.REQUEST_RESPONSE_INFORMATION,
    Property.RECEIVE_MAXIMUM,
    Property.TOPIC_ALIAS_MAXIMUM,
    Property.MAXIMUM_PACKET_SIZE,
)
_CONNACK_PROPERTIES = (
    _AUTHENTICATION
    | _REASON
    | mask(
        Property.SESSION_EXPIRY_INTERVAL,
        Property.ASSIGNED_CLIENT_IDENTIFIER,
        Property.SERVER_KEEP_ALIVE,
        Property.RESPONSE_INFORMATION,
        Property.SERVER_REFERENCE,
        Property.RECEIVE_MAXIMUM,
        Property.TOPIC_ALIAS_MAXIMUM,
        Property.MAXIMUM_QOS,
        Property.RETAIN_AVAILABLE,
        Property.MAXIMUM_PACKET_SIZE,
        Property.WILDCARD_SUBSCRIPTION_AVAILABLE,
        Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE,
        Property.SHARED_SUBSCRIPTION_AVAILABLE,
    )
)


def check_publish(packet: Buffer, first: int, bounds: Bounds) -> None:
    qos = first & 0x06
    if qos == 0x06:
        raise Malformed(MALFORMED_PACKET, "QoS 3")
    if first & 0x0E == 0x08:
        raise Malformed(MALFORMED_PACKET, "the duplicate flag is set at QoS 0")
    begin = 4 if packet[1] < 0x80 else variable(packet, 1)[1] + 2
    end = begin + (packet[begin - 2] << 8 | packet[begin - 1])
    # Cut off at the end of the packet, if need be: then the look at the next byte tells.
    topic = str(packet[begin:end], "utf-8")
    if "\0" in topic:
        raise Malformed(MALFORMED_PACKET, "the topic contains the character U+0000")
    if "+" in topic or "#" in topic:
        raise Malformed(TOPIC_NAME_INVALID, "the topic contains a wildcard")
    if qos:
        _check_packet_id(packet, end)
        end += 2
    seen = 0
    if packet[end]:
        seen, _ = check(packet, end, _PUBLISH_PROPERTIES, _SUBSCRIPTION_IDENTIFIER, bounds.user_properties)
    if not topic and not seen & _TOPIC_ALIAS:
        raise Malformed(PROTOCOL_ERROR, "the topic is empty and there is no alias")


def check_other(packet: bytes, first: int, bounds: Bounds) -> None:
    kind = first >> 4
    length, position = variable(packet, 1)
    if length != len(packet) - position:
        raise Malformed(MALFORMED_PACKET, "the length of the packet does not match its header")
    if not kind:
        raise Malformed(MALFORMED_PACKET, "packets of type 0 do not exist")
    if first & 0x0F != _FLAGS.get(kind, 0):
        raise Malformed(MALFORMED_PACKET, "invalid reserved bits of the fixed header")
    if _CHECKS[kind](packet, position, bounds) != len(packet):
        raise Malformed(MALFORMED_PACKET, "bytes follow the last field of the packet")


def _check_packet_id(packet: Buffer, position: int) -> None:
    if not u16(packet, position):
        raise Malformed(PROTOCOL_ERROR, "the packet identifier is 0")


def _check_connect(packet: bytes, position: int, bounds: Bounds) -> int:
    if version_of_connect(packet) != _VERSION:
        raise Malformed(UNSUPPORTED_PROTOCOL_VERSION, "not a CONNECT of MQTT 5")
    _, position = binary(packet, position)
    flags = packet[position + 1]
    if flags & 0x01:
        raise Malformed(MALFORMED_PACKET, "the reserved connect flag is set")
    has_will = flags & 0x04
    if not has_will and flags & 0x38:
        raise Malformed(MALFORMED_PACKET, "QoS or retain of a will without a will")
    if flags & 0x18 == 0x18:
        raise Malformed(MALFORMED_PACKET, "a will of QoS 3")
    u16(packet, position + 2)  # keep alive, any
    seen, position = check(packet, position + 4, _CONNECT_PROPERTIES, 0, bounds.user_properties)
    _check_authentication(seen)
    _, position = text(packet, position)
    if has_will:
        _, position = check(packet, position, _WILL_PROPERTIES, 0, bounds.user_properties)
        topic, position = text(packet, position)
        if not topic or "+" in topic or "#" in topic:
            raise Malformed(TOPIC_NAME_INVALID, "the topic of the will is not a topic to publish on")
        _, position = binary(packet, position)
    if flags & 0x80:
        _, position = text(packet, position)
    if flags & 0x40:
        _, position = binary(packet, position)
    return position


def _check_authentication(seen: int) -> None:
    if seen & _AUTHENTICATION == mask(Property.AUTHENTICATION_DATA):
        raise Malformed(PROTOCOL_ERROR, "authentication data without a method")


def _check_connack(packet: bytes, position: int, bounds: Bounds) -> int:
    flags, reason = packet[position], packet[position + 1]
    if flags > 1:
        raise Malformed(MALFORMED_PACKET, "a reserved acknowledge flag is set")
    if flags and reason:
        raise Malformed(PROTOCOL_ERROR, "a refused connection with a session present")
    _check_reason(mqtt5.ConnAckReasonCode, reason)
    return check(packet, position + 2, _CONNACK_PROPERTIES, 0, bounds.user_properties)[1]


def _check_reason(reasons: Callable[[int], object], reason: int) -> None:
    try:
        reasons(reason)
    except ValueError:
        raise Malformed(PROTOCOL_ERROR, f"the reason code {reason:#04x} is not allowed in this packet") from None


def _check_ack(reasons: Callable[[int], object]) -> Check:
    def checked(packet: bytes, position: int, bounds: Bounds) -> int:
        _check_packet_id(packet, position)
        position += 2
        if position == len(packet):
            return position
        _check_reason(reasons, packet[position])
        return _check_rest(packet, position + 1, _REASON, bounds)

    return checked


def _check_rest(packet: bytes, position: int, allowed: int, bounds: Bounds) -> int:
    """Properties that may be left out altogether, where a packet may end after its reason code."""
    return position if position == len(packet) else check(packet, position, allowed, 0, bounds.user_properties)[1]


def _check_subscribe(packet: bytes, position: int, bounds: Bounds) -> int:
    _check_packet_id(packet, position)
    _, position = check(packet, position + 2, _SUBSCRIPTION_IDENTIFIER, 0, bounds.user_properties)
    if position == len(packet):
        raise Malformed(PROTOCOL_ERROR, "a SUBSCRIBE without filters")
    count = 0
    while position < len(packet):
        count = _counted(count, bounds)
        pattern, position = text(packet, position)
        options = packet[position]
        position += 1
        if options & 0xC0:
            raise Malformed(MALFORMED_PACKET, "a reserved bit of the subscription options is set")
        if options & 0x03 == 0x03:
            raise Malformed(PROTOCOL_ERROR, "a subscription with QoS 3")
        if options & 0x30 == 0x30:
            raise Malformed(PROTOCOL_ERROR, "a subscription with retain handling 3")
        if options & 0x04 and pattern.startswith("$share/"):
            raise Malformed(PROTOCOL_ERROR, "a shared subscription with no-local")
    return position


def _check_unsubscribe(packet: bytes, position: int, bounds: Bounds) -> int:
    _check_packet_id(packet, position)
    _, position = check(packet, position + 2, 0, 0, bounds.user_properties)
    if position == len(packet):
        raise Malformed(PROTOCOL_ERROR, "an UNSUBSCRIBE without filters")
    count = 0
    while position < len(packet):
        count = _counted(count, bounds)
        _, position = text(packet, position)
    return position


def _counted(filters: int, bounds: Bounds) -> int:
    if filters >= bounds.filters:
        raise Malformed(QUOTA_EXCEEDED, f"more than {bounds.filters} filters")
    return filters + 1


def _check_answers(reasons: Callable[[int], object]) -> Check:
    def checked(packet: bytes, position: int, bounds: Bounds) -> int:
        _check_packet_id(packet, position)
        _, position = check(packet, position + 2, _REASON, 0, bounds.user_properties)
        if position == len(packet):
            raise Malformed(PROTOCOL_ERROR, "an acknowledgement without reason codes")
        if len(packet) - position > bounds.filters:
            raise Malformed(QUOTA_EXCEEDED, f"an answer to more than {bounds.filters} filters")
        for reason in set(packet[position:]):
            _check_reason(reasons, reason)
        return len(packet)

    return checked


def _check_nothing(_packet: bytes, position: int, _bounds: Bounds) -> int:
    return position


def _check_disconnect(packet: bytes, position: int, bounds: Bounds) -> int:
    if position == len(packet):
        return position
    _check_reason(mqtt5.DisconnectReasonCode, packet[position])
    return _check_rest(packet, position + 1, _DISCONNECT_PROPERTIES, bounds)


def _check_auth(packet: bytes, position: int, bounds: Bounds) -> int:
    seen = 0
    if position < len(packet):
        _check_reason(mqtt5.AuthReasonCode, packet[position])
        seen, position = check(packet, position + 1, _AUTH_PROPERTIES, 0, bounds.user_properties)
    if not seen & mask(Property.AUTHENTICATION_METHOD):
        raise Malformed(PROTOCOL_ERROR, "an authentication without a method")
    return position


_FLAGS: Final = {6: 2, 8: 2, 10: 2}
"""The lower half of the first byte for PUBREL, SUBSCRIBE and UNSUBSCRIBE; 0 for the others."""

_CHECKS: Final[dict[int, Check]] = {
    1: _check_connect,
    2: _check_connack,
    4: _check_ack(mqtt5.PubAckReasonCode),
    5: _check_ack(mqtt5.PubRecReasonCode),
    6: _check_ack(mqtt5.PubRelReasonCode),
    7: _check_ack(mqtt5.PubCompReasonCode),
    8: _check_subscribe,
    9: _check_answers(mqtt5.SubAckReasonCode),
    10: _check_unsubscribe,
    11: _check_answers(mqtt5.UnsubAckReasonCode),
    12: _check_nothing,
    13: _check_nothing,
    14: _check_disconnect,
    15: _check_auth,
}
