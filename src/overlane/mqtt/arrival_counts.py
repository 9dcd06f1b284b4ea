"""What the overlay has brought for clients here, as they would count it.

What it carries is not always one message of a topic: a run is many at once, a mixed run is many of several topics, a
message for a shared subscription goes by a name of its own, and retained messages that brokers exchange are for nobody
in particular. Mixed runs were taken apart when they were handed out.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from overlane.core.events import Deliver
from overlane.core.wire.parcel import MIXED_RUN
from overlane.mqtt.runs import RUN, size_of_run
from overlane.pubsub.cluster.arrivals import Mixed
from overlane.pubsub.cluster.envelope import PROPERTIES, bytes_behind_properties
from overlane.pubsub.cluster.names import topic_of


class Tally(NamedTuple):
    effect: Deliver
    together: Sequence[tuple[str, int, int]]
    """(topic, messages, the bytes of their payloads); those of one topic that follow each other are together."""
    mixed: Sequence[Mixed]


def tally(effect: Deliver, mixed: Sequence[Mixed] = ()) -> Tally:
    """`mixed`: what was in its mixed runs."""
    return Tally(effect, list(_together(effect)), mixed)


def _together(effect: Deliver) -> Iterator[tuple[str, int, int]]:
    last, count, size_bytes = "", 0, 0
    for topic, flags, body in effect.messages:
        if topic == MIXED_RUN:
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


def _told(topic: str, effect: Deliver) -> str:
    """The topic as clients know it; empty if it is for no client."""
    if not effect.subscribers.get(topic):
        return ""
    return topic_of(topic) if topic.startswith("$") else topic
