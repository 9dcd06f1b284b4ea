"""Properties that are the same on a message's way in and on its way out (MQTT 5, section 3.3.2.3).

A message that has no others passes as the bytes it came as: content type, response topic, correlation data, and user
properties by which nothing is asked of the broker. A payload format, an expiry interval and a topic alias are for the
broker to look at, and so is whatever is not as it should be.

Most clients write the same properties again and again, with other correlation data at most. What was found to be plain
is therefore remembered: all of it (`_known`), where there is no correlation data, and the bytes before and behind the
correlation data of the message that was looked at last. Everything else is looked at property by property.
"""

from overlane.pubsub.properties import CONTENT_TYPE, CORRELATION_DATA, RESPONSE_TOPIC, USER_PROPERTY

ASKED_OF_THE_BROKER = b"overlane-"
KNOWN_MAX = 4_096
"""Each of up to 128 bytes. When there are so many, they are forgotten."""
_CORRELATED = 4
_ONCE = {CONTENT_TYPE: 1, RESPONSE_TOPIC: 2, CORRELATION_DATA: _CORRELATED}


class PlainProperties:
    """Looks at properties, and remembers those that are plain."""

    __slots__ = ("_before", "_behind", "_known", "_pairs")

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        """Properties without correlation data, and how many user properties are among them."""
        self._before = self._behind = b""
        """The properties around the correlation data that was seen last, and the user properties among them."""
        self._pairs = 0

    def end(self, data: bytes, position: int, following: int, pairs_max: int) -> int:
        """Where the payload of a packet begins whose properties begin at the position; 0 if they are not plain.

        `following`: where the packet ends. `pairs_max`: so many user properties are allowed.
        """
        end = position + 1 + data[position]
        if data[position] > 0x7F or end > following:
            return 0
        at = position + 1 + len(self._before)
        if at + 2 < end and data[at] == CORRELATION_DATA and data.startswith(self._before, position + 1):
            at += 3 + (data[at + 1] << 8) + data[at + 2]
            if at + len(self._behind) == end and data.startswith(self._behind, at) and self._pairs <= pairs_max:
                return end
        pairs = self._known.get(data[position + 1 : end])
        if pairs is not None and pairs <= pairs_max:
            return end
        return self._look(data, position, end, pairs_max)

    def _look(self, data: bytes, position: int, end: int, pairs_max: int) -> int:
        """As `end`, property by property, of what is remembered from now on if it is plain."""
        start = at = position + 1
        seen = pairs = correlated = behind = 0
        try:
            while at < end:
                kind, first = data[at], at
                text = at + 3
                at = text + (data[at + 1] << 8) + data[at + 2]
                if kind == USER_PROPERTY:
                    pairs += 1
                    value = at + 2
                    if data.startswith(ASKED_OF_THE_BROKER, text) or pairs > pairs_max:
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
                        correlated, behind = first, at
                        continue
                value_utf8 = data[text:at]
                value_utf8.decode()
                if b"\0" in value_utf8 or (kind == RESPONSE_TOPIC and _is_no_topic(value_utf8)):
                    return 0
        except (IndexError, UnicodeDecodeError):
            return 0
        if at != end:
            return 0
        if seen & _CORRELATED:
            self._before, self._behind, self._pairs = data[start:correlated], data[behind:end], pairs
        else:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[data[start:end]] = pairs
        return end


def _is_no_topic(topic_utf8: bytes) -> bool:
    return not topic_utf8 or b"+" in topic_utf8 or b"#" in topic_utf8
