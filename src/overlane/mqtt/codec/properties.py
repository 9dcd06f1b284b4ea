"""The property lists of MQTT 5 (section 2.2.2): each property's shape and limits, checked in one walk over the bytes.

    length variable | (identifier u8 | value, by its shape) ...

A list may hold each property once, besides those that may be repeated; which ones, depends on the packet. A property
that does not belong into its packet, or does not end where the list ends, is malformed; one that comes twice or has a
value that is not allowed is a protocol error. Sets of properties are bit masks, bit i for identifier i.
"""

from enum import IntEnum
from typing import Final

from overlane.mqtt.codec.fields import Buffer, binary, text, u16, variable
from overlane.mqtt.codec.malformed import (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    TOPIC_ALIAS_INVALID,
    Malformed,
)


class Property(IntEnum):
    PAYLOAD_FORMAT_INDICATOR = 0x01
    MESSAGE_EXPIRY_INTERVAL = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY_INTERVAL = 0x11
    ASSIGNED_CLIENT_IDENTIFIER = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_INTERVAL = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


def mask(*properties: Property) -> int:
    return sum(1 << kind for kind in properties)


# Every property of one byte is a yes or no. A shape is a plain number, because the walk is in the way of every PUBLISH.
_YES_NO, _U16, _U32, _VARIABLE, _TEXT, _BINARY = range(1, 7)

_SHAPES: Final = {
    int(kind): shape
    for shape, kinds in {
        _YES_NO: (
            Property.PAYLOAD_FORMAT_INDICATOR,
            Property.REQUEST_PROBLEM_INFORMATION,
            Property.REQUEST_RESPONSE_INFORMATION,
            Property.MAXIMUM_QOS,
            Property.RETAIN_AVAILABLE,
            Property.WILDCARD_SUBSCRIPTION_AVAILABLE,
            Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE,
            Property.SHARED_SUBSCRIPTION_AVAILABLE,
        ),
        _U16: (
            Property.SERVER_KEEP_ALIVE,
            Property.RECEIVE_MAXIMUM,
            Property.TOPIC_ALIAS_MAXIMUM,
            Property.TOPIC_ALIAS,
        ),
        _U32: (
            Property.MESSAGE_EXPIRY_INTERVAL,
            Property.SESSION_EXPIRY_INTERVAL,
            Property.WILL_DELAY_INTERVAL,
            Property.MAXIMUM_PACKET_SIZE,
        ),
        _VARIABLE: (Property.SUBSCRIPTION_IDENTIFIER,),
        _TEXT: (
            Property.CONTENT_TYPE,
            Property.RESPONSE_TOPIC,
            Property.ASSIGNED_CLIENT_IDENTIFIER,
            Property.AUTHENTICATION_METHOD,
            Property.RESPONSE_INFORMATION,
            Property.SERVER_REFERENCE,
            Property.REASON_STRING,
        ),
        _BINARY: (Property.CORRELATION_DATA, Property.AUTHENTICATION_DATA),
    }.items()
    for kind in kinds
}

_USER_PROPERTY: Final = int(Property.USER_PROPERTY)
_RESPONSE_TOPIC: Final = int(Property.RESPONSE_TOPIC)
_NEVER_ZERO: Final = {
    int(Property.SUBSCRIPTION_IDENTIFIER): PROTOCOL_ERROR,
    int(Property.RECEIVE_MAXIMUM): PROTOCOL_ERROR,
    int(Property.MAXIMUM_PACKET_SIZE): PROTOCOL_ERROR,
    int(Property.TOPIC_ALIAS): TOPIC_ALIAS_INVALID,
}


def check(packet: Buffer, position: int, allowed: int, repeatable: int, repeated_max: int) -> tuple[int, int]:
    """Check the list that begins, with its length, at the position. Gives which properties it has, and where it ends.

    User properties are allowed in every list and may be repeated.
    """
    length, position = variable(packet, position)
    end = position + length
    if end > len(packet):
        raise IndexError
    seen = repeated = 0
    # A copy of the list alone: a property that runs over its end then runs into the end of the buffer.
    block = bytes(packet[position:end])
    is_ascii = block.isascii()
    at = 0
    while at < length:
        kind = block[at]
        at += 1
        if kind == _USER_PROPERTY:
            at = _check_pair(block, at, is_ascii)
            repeated += 1
        else:
            bit = 1 << kind
            if not bit & allowed:
                told = f"a property with identifier {kind:#04x} is not allowed in this packet"
                raise Malformed(MALFORMED_PACKET, told)
            if bit & repeatable:
                repeated += 1
            elif bit & seen:
                raise Malformed(PROTOCOL_ERROR, f"the property {Property(kind)} is given twice")
            seen |= bit
            at = _check_value(block, at, kind)
        if repeated > repeated_max:
            raise Malformed(QUOTA_EXCEEDED, f"more than {repeated_max} user properties or subscription identifiers")
    return seen, end


def _check_pair(block: bytes, at: int, is_ascii: bool) -> int:
    """A user property: two texts. What is known to be ASCII is UTF-8 without being decoded."""
    middle = at + 2 + (block[at] << 8 | block[at + 1])
    end = middle + 2 + (block[middle] << 8 | block[middle + 1])
    if end > len(block):
        raise IndexError
    if not is_ascii:
        text(block, at)
        text(block, middle)
    elif 0 in block[at + 2 : middle] or 0 in block[middle + 2 : end]:
        raise Malformed(MALFORMED_PACKET, "a string contains the character U+0000")
    return end


def _check_value(block: bytes, at: int, kind: int) -> int:
    shape = _SHAPES[kind]
    if shape == _TEXT:
        value, at = text(block, at)
        if kind == _RESPONSE_TOPIC and (not value or "+" in value or "#" in value):
            raise Malformed(PROTOCOL_ERROR, "the response topic is not a topic to publish on")
        return at
    if shape == _BINARY:
        return binary(block, at)[1]
    if shape == _YES_NO:
        if block[at] > 1:
            raise Malformed(PROTOCOL_ERROR, f"the property {Property(kind)} is {block[at]}; allowed are 0 and 1")
        return at + 1
    if shape == _VARIABLE:
        number, at = variable(block, at)
    elif shape == _U16:
        number = u16(block, at)
        at += 2
    else:
        number = u16(block, at) << 16 | u16(block, at + 2)
        at += 4
    if not number and kind in _NEVER_ZERO:
        raise Malformed(_NEVER_ZERO[kind], f"the property {Property(kind)} is 0")
    return at
