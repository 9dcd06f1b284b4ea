r"""Headers of NATS messages and properties of messages.

    NATS/1.0[ status]\r\n name: value\r\n ... \r\n

    Content-Type             content type
    Nats-TTL                 expiry, in seconds: what is left of it when the message is delivered
    Mqtt-Correlation-Data    correlation data, as base64
    any other                user property; order and case are kept

A name or value of a user property that a header cannot have is written with `%` and hexadecimal digits for the line
breaks, and in a name for blanks and colons too. The status line of a header block is the user property `nats-status`.
"""

import base64
import binascii
import re

from overlane.errors import OverlaneError
from overlane.pubsub.message import EXPIRY_S_MAX
from overlane.pubsub.properties import Properties

START = b"NATS/1.0"
NO_RESPONDERS = b"NATS/1.0 503\r\n\r\n"

CONTENT_TYPE = "Content-Type"
TTL = "Nats-TTL"
CORRELATION_DATA = "Mqtt-Correlation-Data"
STATUS = "nats-status"

_in_name = re.compile("[\x00-\x20:\x7f]")
_in_value = re.compile("[\r\n]")


class BadHeaders(OverlaneError, ValueError):
    """A header block that is not as described above."""

    error_code = "OVL-133"


def read_headers(block: bytes, response_topic: str | None, pairs_max: int) -> tuple[Properties, int | None]:
    """The properties of a message with these headers, and its expiry in seconds; BadHeaders."""
    try:
        text = block.decode()
    except UnicodeDecodeError:
        raise BadHeaders("headers that are not UTF-8") from None
    first, *lines = text.split("\r\n")
    if not first.startswith("NATS/1.0") or lines[-2:] != ["", ""] or "\0" in text:
        raise BadHeaders("headers do not begin with NATS/1.0, or do not end with an empty line")
    if len(lines) - 2 > pairs_max:
        raise BadHeaders(f"more than {pairs_max} headers")
    content_type: str | None = None
    correlation_data: bytes | None = None
    expiry_s: int | None = None
    pairs: list[tuple[str, str]] = []
    if status := first[len(START) :].strip():
        pairs.append((STATUS, status))
    for line in lines[:-2]:
        name, colon, value = line.partition(":")
        if not colon or not name:
            raise BadHeaders("a header without a name")
        value = value.strip(" \t")
        if name == CONTENT_TYPE and content_type is None:
            content_type = value
        elif name == TTL and expiry_s is None and value.isascii() and value.isdigit() and len(value) <= 10:
            expiry_s = min(int(value), EXPIRY_S_MAX)
        elif name == CORRELATION_DATA and correlation_data is None and (data := _decoded(value)) is not None:
            correlation_data = data
        else:
            pairs.append((name, value))
    return Properties(content_type, response_topic, correlation_data, user_properties=tuple(pairs)), expiry_s


def write_headers(properties: Properties, expiry_s: int | None) -> bytes:
    """The header block of a message; b"" if it has none."""
    status = ""
    lines: list[str] = []
    if properties.content_type is not None:
        lines.append(f"{CONTENT_TYPE}: {_escaped(_in_value, properties.content_type)}")
    if expiry_s is not None:
        lines.append(f"{TTL}: {expiry_s}")
    if properties.correlation_data is not None:
        lines.append(f"{CORRELATION_DATA}: {base64.b64encode(properties.correlation_data).decode()}")
    for name, value in properties.user_properties:
        if name == STATUS and not status:
            status = " " + _escaped(_in_value, value)
        else:
            lines.append(f"{_escaped(_in_name, name) or '%'}: {_escaped(_in_value, value)}")
    if not lines and not status:
        return b""
    return "\r\n".join([f"NATS/1.0{status}", *lines, "", ""]).encode()


def _escaped(what: re.Pattern[str], text: str) -> str:
    return what.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _decoded(value: str) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None
