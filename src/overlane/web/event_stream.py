"""Server-Sent Events (HTML standard, section 9.2): messages as an endless response.

    id: 1731866400000000000-42                      position in a stream; only where a stream is read
    data: {"topic":"a/b","payload":"21.5"}          one line of JSON; payload_base64 where the payload is not UTF-8

A line that begins with a colon is a heartbeat. An event `lost` says how many messages the reader has missed.
"""

from base64 import b64encode
from collections.abc import Sequence

import msgspec

from overlane.pubsub.properties import decode

RETRY_MS = 2_000
HEARTBEAT = b":\n\n"
START = f"retry: {RETRY_MS}\n\n".encode()
CONTENT_TYPE = "text/event-stream"


class EventMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    topic: str
    payload: str | None = None
    payload_base64: str | None = None
    qos: int = 0
    retain: bool = False
    content_type: str | None = None
    properties: Sequence[tuple[str, str]] = ()


def message_event(topic: str, payload: bytes, qos: int, retain: bool, encoded: bytes, position: str = "") -> bytes:
    """`encoded`: the properties of the message."""
    properties = decode(encoded)
    try:
        text, binary = payload.decode(), None
    except UnicodeDecodeError:
        text, binary = None, b64encode(payload).decode()
    message = EventMessage(
        topic=topic,
        payload=text,
        payload_base64=binary,
        qos=qos,
        retain=retain,
        content_type=properties.content_type,
        properties=properties.user_properties,
    )
    head = f"id: {position}\n".encode() if position else b""
    return head + b"data: " + msgspec.json.encode(message) + b"\n\n"


def lost_event(count: int) -> bytes:
    return f'event: lost\ndata: {{"messages":{count}}}\n\n'.encode()


def gone_event(told: str, position: str) -> bytes:
    """The position that the reader asked for is not kept any more; it goes on from this one."""
    return f"id: {position}\nevent: gone\ndata: ".encode() + msgspec.json.encode({"error": told}) + b"\n\n"


def write_position(since_ns: int, offset: int) -> str:
    """The offset of the next message, in the stream that was made then."""
    return f"{since_ns}-{offset}"


def read_position(text: str) -> tuple[int, int] | None:
    """None if it is none."""
    since, dash, offset = text.partition("-")
    if not dash or not all(one.isascii() and one.isdigit() and len(one) <= 20 for one in (since, offset)):
        return None
    return int(since), int(offset)
