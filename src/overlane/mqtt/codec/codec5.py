"""Packets of MQTT 5: bytes to and from the packet classes of `mqtt5`.

`mqtt5` is compiled and fast, but trusts its input in places where a server must not: it takes strings that MQTT
forbids, aborts on those that are not UTF-8, and lets properties run over the end of their list. So every packet is
first checked against the rules of its type (rules5.py); what passes is well formed, and `mqtt5` makes a value of it.

What a packet means is not judged here: whether its direction is right, whether a filter is well formed, whether an
alias is known.
"""

from collections.abc import Callable
from typing import Final

import mqtt5

from overlane.mqtt.codec.fields import UNBOUNDED, VARIABLE_MAX, Bounds, Buffer
from overlane.mqtt.codec.malformed import MALFORMED_PACKET, PACKET_TOO_LARGE, PAYLOAD_FORMAT_INVALID, Malformed
from overlane.mqtt.codec.rules5 import check_other, check_publish

__all__ = ["ERRORS", "UNBOUNDED", "Bounds", "Malformed", "check_payload", "read", "write"]

ERRORS: Final = 0x80
"""Reason codes from here on tell of an error."""

_HEADROOM_BYTES = 1 << 20
"""What a packet may have besides its payload before its length could become too large to be written."""

_COPIED_BYTES_MAX = 2048
"""Up to here a copy as bytes is cheaper than looking at single bytes of a view."""

# It takes any buffer, whatever its stub says.
_parse: Callable[[Buffer], tuple[mqtt5.Packet, int]] = mqtt5.read  # type: ignore[assignment]


def read(packet: Buffer, bounds: Bounds = UNBOUNDED) -> mqtt5.Packet:
    """Exactly one whole packet."""
    if isinstance(packet, memoryview) and len(packet) <= _COPIED_BYTES_MAX:
        packet = packet.tobytes()
    try:
        first = packet[0]
        if first & 0xF0 == 0x30:
            check_publish(packet, first, bounds)
        else:
            check_other(bytes(packet), first, bounds)
        value, size = _parse(packet)
    except Malformed:
        raise
    except IndexError:
        raise Malformed(MALFORMED_PACKET, "the packet ends too early") from None
    except UnicodeDecodeError:
        raise Malformed(MALFORMED_PACKET, "a string is not valid UTF-8") from None
    except ValueError as error:
        raise Malformed(MALFORMED_PACKET, f"the packet cannot be read: {error}") from None
    if size != len(packet):
        raise Malformed(MALFORMED_PACKET, "bytes follow the end of the packet")
    return value


def write(packet: mqtt5.Packet) -> bytes:
    if isinstance(packet, mqtt5.PublishPacket) and len(packet.payload) > VARIABLE_MAX - _HEADROOM_BYTES:
        raise Malformed(PACKET_TOO_LARGE, f"a payload of {len(packet.payload)} bytes is more than MQTT can carry")
    return packet.write()


def check_payload(message: mqtt5.PublishPacket | mqtt5.Will) -> None:
    """Refuse a payload that is said to be UTF-8 and is not. Takes time with its length, so `read` does not do it."""
    if message.payload_format_indicator and message.payload:
        try:
            str(message.payload, "utf-8")
        except UnicodeDecodeError:
            raise Malformed(PAYLOAD_FORMAT_INVALID, "the payload format is UTF-8, but the payload is not") from None
