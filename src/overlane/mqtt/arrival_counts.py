"""What the overlay has brought for clients here, as they would count it.

What it carries is not always one message of a topic: a run is many at once, a bundle is many of several topics, a
message for a shared subscription goes by a name of its own, and retained messages that brokers exchange are for nobody
in particular. It is taken apart once for all who count.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from overlane.core.events import Deliver
from overlane.core.wire.parcel import BUNDLE
from overlane.mqtt.runs import RUN, RUN_OF_V5, size_of_run
from overlane.pubsub.cluster.envelope import PROPERTIES, bytes_behind_properties
from overlane.pubsub.cluster.names import topic_of

TOPICS_REMEMBERED = 10_000


class Mixed(NamedTuple):
    """Of each message of a bundle, its topic and the bytes of its payload."""

    topics: list[str]
    sizes: list[int]


class Tally(NamedTuple):
    effect: Deliver
    together: Sequence[tuple[str, int, int]]
    """(topic, messages, the bytes of their payloads); those of one topic that follow each other are together."""
    mixed: Sequence[Mixed]


def tally(effect: Deliver) -> Tally:
    mixed = [_mixed(flags, body) for topic, flags, body in effect.messages if topic == BUNDLE]
    return Tally(effect, list(_together(effect)), mixed)


def _together(effect: Deliver) -> Iterator[tuple[str, int, int]]:
    last, count, size_bytes = "", 0, 0
    for topic, flags, body in effect.messages:
        if topic == BUNDLE:
            continue
        if topic is not last or flags & RUN:
            if count and (told := _told(last, effect)):
                yield told, count, size_bytes
            last, count, size_bytes = topic, 0, 0
            if flags & RUN:
                if told := _told(topic, effect):
                    yield told, *size_of_run(flags, body)
                continue
        count += 1
        size_bytes += bytes_behind_properties(body) if flags & PROPERTIES else len(body)
    if count and (told := _told(last, effect)):
        yield told, count, size_bytes


def _mixed(flags: int, body: bytes) -> Mixed:
    """As far as it can be read: who hands it out looks closer."""
    topics: list[str] = []
    sizes: list[int] = []
    behind_topic = 3 if flags & RUN_OF_V5 else 2
    position, end = 4, len(body)
    while position + 4 < end:
        length = body[position + 1]
        at = position + 2
        if length > 0x7F:
            length += (body[at] << 7) - 0x80
            at += 1
        topic_bytes = body[at + 1]
        position = at + length
        if position > end:
            break
        topics.append(_text(body[at + 2 : at + 2 + topic_bytes]))
        sizes.append(length - topic_bytes - behind_topic)
    return Mixed(topics, sizes)


@lru_cache(maxsize=TOPICS_REMEMBERED)
def _text(topic_utf8: bytes) -> str:
    return topic_utf8.decode(errors="replace")


def _told(topic: str, effect: Deliver) -> str:
    """The topic as clients know it; empty if it is for no client."""
    if topic not in effect.subscribers:
        return ""
    return topic_of(topic) if topic.startswith("$") else topic
