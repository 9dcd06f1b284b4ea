"""History: messages kept for late subscribers.

Per topic the last n messages are kept, or all within their lifespan. A broker keeps durably what was published at it,
and replays it to a broker that newly needs a matching filter. It also keeps in memory what came from other brokers, for
later subscribers of its own. Each message has a name (origin, incarnation, flow, sequence, index), so that a message
that a subscriber already received is not replayed to it.
"""

import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from overlane.core.events import Effect, Erase, Save
from overlane.core.qos import HISTORY_ALL, QosClass
from overlane.core.records import THE_BROKER, RecordKind, numbers_in
from overlane.core.topics import FilterTrie
from overlane.core.units import Nanos

TABLE = "history"
NAMES_REMEMBERED = 4096
AWAITED_FOR: Nanos = 60_000_000_000

_NAME = struct.Struct("!IIII")
NAME_BYTES = _NAME.size

MessageName = tuple[int, int, int, int, int]
"""(origin, incarnation, flow, sequence, index)."""


@dataclass(frozen=True, slots=True)
class Kept:
    name: MessageName
    topic: str
    flags: int
    body: bytes
    qos: QosClass
    published_ns: Nanos


class TopicHistory:
    def __init__(self, me: int) -> None:
        self._me = me
        self._topics: dict[str, OrderedDict[MessageName, Kept]] = {}
        self._names: OrderedDict[MessageName, None] = OrderedDict()

    def knows(self, name: MessageName) -> bool:
        return name in self._names

    def keep(self, kept: Kept, now: Nanos) -> list[Effect]:
        """Keep a message; what this means for the store."""
        effects: list[Effect] = []
        self._names[kept.name] = None
        if len(self._names) > NAMES_REMEMBERED:
            self._names.popitem(last=False)
        messages = self._topics.setdefault(kept.topic, OrderedDict())
        messages[kept.name] = kept
        if kept.qos.history != HISTORY_ALL and any(_is_later(other, kept.name) for other in messages):
            messages.move_to_end(kept.name, last=False)  # it comes last, but was published before
        if kept.name[0] == self._me:
            effects.append(Save(TABLE, _key(kept.name), _encode(kept)))
        limit = kept.qos.history
        while messages:
            oldest = next(iter(messages.values()))
            expired = now - oldest.published_ns >= oldest.qos.lifespan_ns
            if not expired and (limit == HISTORY_ALL or len(messages) <= limit):
                break
            del messages[oldest.name]
            if oldest.name[0] == self._me:
                effects.append(Erase(TABLE, _key(oldest.name)))
        return effects

    def expire(self, now: Nanos) -> list[Effect]:
        """Drop what has outlived its lifespan, on topics too where nothing is published any more."""
        effects: list[Effect] = []
        for topic in list(self._topics):
            messages = self._topics[topic]
            while messages:
                oldest = next(iter(messages.values()))
                if now - oldest.published_ns < oldest.qos.lifespan_ns:
                    break
                del messages[oldest.name]
                if oldest.name[0] == self._me:
                    effects.append(Erase(TABLE, _key(oldest.name)))
            if not messages:
                del self._topics[topic]
        return effects

    def matching(self, topic_filter: str, own_only: bool, now: Nanos) -> Iterator[Kept]:
        """What is kept for a filter, topic by topic, oldest first."""
        return self.matching_any((topic_filter,), own_only, now)

    def matching_any(self, filters: Iterable[str], own_only: bool, now: Nanos) -> Iterator[Kept]:
        """What is kept for any of the filters, each once: in one walk through the topics, however many filters."""
        trie: FilterTrie[bool] = FilterTrie()
        exact = []
        for topic_filter in filters:
            if "+" in topic_filter or "#" in topic_filter:
                trie.add(topic_filter, True)
            elif topic_filter in self._topics:
                exact.append(topic_filter)
        wild = {topic for topic in self._topics if trie.match(topic)} if len(trie) else set()
        for topic in sorted(wild.union(exact)):
            yield from self._of(topic, own_only, now)

    def _of(self, topic: str, own_only: bool, now: Nanos) -> Iterator[Kept]:
        for kept in self._topics[topic].values():
            if (not own_only or kept.name[0] == self._me) and now - kept.published_ns < kept.qos.lifespan_ns:
                yield kept

    def restore(self, value: bytes, qos: QosClass) -> None:
        name, topic, flags, body, published_ns = _decode(value)
        self._names[name] = None
        self._topics.setdefault(topic, OrderedDict())[name] = Kept(name, topic, flags, body, qos, published_ns)

    @staticmethod
    def topic_of(value: bytes) -> str:
        return _decode(value)[1]


def _is_later(one: MessageName, other: MessageName) -> bool:
    """Whether the first was surely published after the second: in a later incarnation, or later in its flow."""
    if one[0] != other[0]:
        return False
    return one[1] > other[1] or (one[1:3] == other[1:3] and one[3:] > other[3:])


def wrap(kept: Kept) -> bytes:
    """A replayed message's body carries its name ahead."""
    return _NAME.pack(*kept.name[1:]) + kept.body


def unwrap(origin: int, body: bytes) -> tuple[MessageName, bytes]:
    incarnation, flow, sequence, index = _NAME.unpack_from(body)
    return (origin, incarnation, flow, sequence, index), body[NAME_BYTES:]


def _key(name: MessageName) -> bytes:
    return b"".join(number.to_bytes(8) for number in name)


def _encode(kept: Kept) -> bytes:
    return msgspec.msgpack.encode((kept.name, kept.topic, kept.flags, kept.body, kept.published_ns))


_decode = msgspec.msgpack.Decoder(tuple[MessageName, str, int, bytes, int]).decode

HISTORY_KIND = RecordKind(TABLE, lambda _: THE_BROKER, lambda key, value: (numbers_in(key, 5), _decode(value)))
