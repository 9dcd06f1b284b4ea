"""Properties that are the same on a message's way in and on its way out (MQTT 5, section 3.3.2.3).

A message that has no others passes as the bytes it came as: content type, response topic, correlation data, and user
properties by which nothing is asked of the broker. A payload format, an expiry interval and a topic alias are for the
broker to look at, and so is whatever is not as it should be.
"""

from overlane.pubsub.properties import CONTENT_TYPE, CORRELATION_DATA, RESPONSE_TOPIC, USER_PROPERTY

ASKED_OF_THE_BROKER = b"overlane-"


def end_of_properties(data: bytes, position: int, following: int, pairs_max: int) -> int:
    """Where the payload of a packet begins whose properties begin at the position; 0 if they are not plain.

    `following`: where the packet ends. `pairs_max`: so many user properties are allowed.
    """
    end = position + 1 + data[position]
    if data[position] > 0x7F or end > following:
        return 0
    at = position + 1
    seen = 0
    try:
        while at < end:
            kind = data[at]
            text = at + 3
            at = text + (data[at + 1] << 8) + data[at + 2]
            if kind == USER_PROPERTY:
                pairs_max -= 1
                value = at + 2
                if data.startswith(ASKED_OF_THE_BROKER, text) or not pairs_max >= 0:
                    return 0
                name, text, at = data[text:at], value, value + (data[at] << 8) + data[at + 1]
                name.decode()
                if b"\0" in name:
                    return 0
            elif kind not in _ONCE or seen & _ONCE[kind]:
                return 0
            else:
                seen |= _ONCE[kind]
                if kind == CORRELATION_DATA:
                    continue
            value_utf8 = data[text:at]
            value_utf8.decode()
            if b"\0" in value_utf8 or (kind == RESPONSE_TOPIC and _is_no_topic(value_utf8)):
                return 0
    except (IndexError, UnicodeDecodeError):
        return 0
    return end if at == end else 0


_ONCE = {CONTENT_TYPE: 1, RESPONSE_TOPIC: 2, CORRELATION_DATA: 4}


def _is_no_topic(topic_utf8: bytes) -> bool:
    return not topic_utf8 or b"+" in topic_utf8 or b"#" in topic_utf8
