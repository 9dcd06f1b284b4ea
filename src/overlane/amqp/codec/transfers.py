"""The transfer performative, read without the general decoder: it comes with every message.

What clients write is a short list with few fields, in a handful of forms. Everything else goes to the general decoder,
which reads the same and more.
"""

from overlane.amqp.codec import composites
from overlane.amqp.codec.malformed import Malformed
from overlane.amqp.codec.performatives import Transfer

SHORT_TRANSFER = b"\x00\x53\x14\xc0"

_UINTS = {0x43: 0, 0x52: 1, 0x70: 4}
"""Bytes of an unsigned number behind its code."""
_NULLS = b"\x40" * 5
_BOOLEANS = {0x40: None, 0x41: True, 0x42: False}


def read_transfer(body: bytes) -> tuple[Transfer, int]:
    """The transfer that a frame begins with, and where its payload begins; Malformed."""
    if body.startswith(SHORT_TRANSFER):
        try:
            found = _read_short(body)
        except (IndexError, KeyError):
            found = None  # another form of a field, or not well formed
        if found is not None:
            return found
    value, end = composites.read(body, 0)
    if not isinstance(value, Transfer):
        raise Malformed("not a transfer")
    return value, end


def _read_short(body: bytes) -> tuple[Transfer, int] | None:
    """KeyError for a field in another form, IndexError or None if the general decoder has to say what is wrong."""
    end, count = 5 + body[4], body[5]
    if not 4 <= count <= 11 or end > len(body):
        return None
    at = 6
    width = _UINTS[body[at]]
    handle = int.from_bytes(body[at + 1 : at + 1 + width])
    at += 1 + width
    delivery_id: int | None = None
    if body[at] == 0x40:
        at += 1
    else:
        width = _UINTS[body[at]]
        delivery_id = int.from_bytes(body[at + 1 : at + 1 + width])
        at += 1 + width
    tag: bytes | None = None
    if body[at] == 0x40:
        at += 1
    elif body[at] == 0xA0:
        begin = at + 2
        at = begin + body[at + 1]
        tag = body[begin:at]
    else:
        return None
    message_format: int | None = None
    if body[at] == 0x40:
        at += 1
    else:
        width = _UINTS[body[at]]
        message_format = int.from_bytes(body[at + 1 : at + 1 + width])
        at += 1 + width
    settled = more = None
    if count > 4:
        settled = _BOOLEANS[body[at]]
        at += 1
    if count > 5:
        more = _BOOLEANS[body[at]]
        at += 1
    if count > 6:
        nulls = count - 6
        if body[at : at + nulls] != _NULLS[:nulls]:
            return None
        at += nulls
    if at != end:
        return None
    return Transfer(handle, delivery_id, tag, message_format, settled, more), end
