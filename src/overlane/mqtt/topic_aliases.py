"""Topic aliases of a publisher: its packets as they would be without (MQTT 5, section 3.3.2.3.4).

Only what is most usual: packets of QoS 0 that have an alias instead of a topic, and no other property. The packet that
makes an alias known is one of those that the server handles one by one.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

from overlane.mqtt.codec.fields import write_variable
from overlane.mqtt.runs import PLAIN

ALIAS_ALONE = b"\x00\x00\x03\x23"
"""No topic, and of properties, which take three bytes, an alias."""
LENGTH_MAX = 0x3FFF
PACKETS_MAX = 64


class Expanded(NamedTuple):
    data: bytes
    ends: list[int]
    """Where each packet ends in it."""
    came_to: list[int]
    """Where it has ended before."""

    def origin(self, end: int) -> int:
        """Where the packet has ended before that ends here."""
        return self.came_to[bisect_left(self.ends, end)]


def is_aliased(data: bytes, position: int) -> bool:
    """Whether the packet has an alias alone."""
    at = position + (2 if data[position + 1] < 0x80 else 3)
    return data[position] == PLAIN and data.startswith(ALIAS_ALONE, at)


def expand(data: bytes, position: int, topics: Mapping[int, str]) -> Expanded:
    """Some packets from the position on with their topics, up to one that is not of QoS 0, not whole, or whose alias is
    not known. Not many: if the first of them cannot pass, it was in vain."""
    pieces: list[bytes] = []
    expanded = Expanded(b"", [], [])
    size, end = 0, len(data)
    while position + 4 < end and data[position] == PLAIN and len(expanded.ends) < PACKETS_MAX:
        length = data[position + 1]
        at = position + 2
        if length > 0x7F:
            if not 0 < data[at] < 0x80:
                break
            length += (data[at] << 7) - 0x80
            at += 1
        following = at + length
        if following > end:
            break
        if data.startswith(ALIAS_ALONE, at):
            topic = topics.get((data[at + 4] << 8) + data[at + 5])
            if topic is None or length < len(ALIAS_ALONE) + 2:
                break
            topic_utf8 = topic.encode()
            length += len(topic_utf8) - 3
            if length > LENGTH_MAX:
                break
            pieces += (
                b"\x30",
                write_variable(length),
                len(topic_utf8).to_bytes(2),
                topic_utf8,
                b"\0",
                data[at + len(ALIAS_ALONE) + 2 : following],
            )
            size += 2 + (length > 0x7F) + length
        else:
            pieces.append(data[position:following])
            size += following - position
        expanded.ends.append(size)
        expanded.came_to.append(following)
        position = following
    return expanded._replace(data=b"".join(pieces))
