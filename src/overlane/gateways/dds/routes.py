"""Routes of a DDS gateway: what crosses, decided by who writes here and who reads elsewhere.

Each gateway announces the topics of its domain: their types, whether somebody reads them, and the QoS of a writer. A
topic crosses from one domain to another if it has a writer here, a reader there, and the same type in both. So local
topics stay local. Applications without type information need a gateway that knows the type. Here that means

    a reader     if applications write the topic here, and another gateway announces readers of it
    a writer     for each gateway that announces writers of a topic that applications read here

With `format = "json"` MQTT clients take the place of other gateways: every topic that is written here has a reader, and
every topic that is read here a writer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

Qos = Mapping[str, object]

JSON = "json"
"""Instead of the name of a gateway: MQTT clients."""
BUILT_IN = "DCPS"


class Endpoint(NamedTuple):
    """A reader or writer of an application in the domain."""

    topic: str
    type_name: str
    is_writer: bool
    qos: Qos
    type: bytes = b""
    """Empty if the application has no type information."""


class Topic(msgspec.Struct, frozen=True):
    """What a gateway announces of a topic. `writes`: the QoS of a writer there; `type`: the type, if it is known."""

    type_name: str
    is_read: bool = False
    writes: dict[str, object] | None = None
    type: bytes = b""


Announcement = dict[str, Topic]
Route = tuple[str, str]
"""A gateway that has writers, and a topic."""

_decode = msgspec.json.Decoder(Announcement).decode


@dataclass(frozen=True)
class Changes:
    """What is to be done now."""

    types: tuple[tuple[str, bytes], ...] = ()
    """Learned from other gateways, for what is opened."""
    open_readers: tuple[str, ...] = ()
    close_readers: tuple[str, ...] = ()
    open_writers: tuple[tuple[Route, Qos], ...] = ()
    close_writers: tuple[Route, ...] = ()
    announcement: bytes | None = None
    """If it is a new one."""


class Routes:
    def __init__(self, patterns: Iterable[str] = ("*",), *, is_json: bool = False) -> None:
        self._patterns = tuple(patterns)
        self._is_json = is_json
        self._endpoints: dict[str, Endpoint] = {}
        self._others: dict[str, Announcement] = {}
        self._readers: set[str] = set()
        self._writers: dict[Route, Qos] = {}
        self._announced = b""

    # Inputs

    def found(self, key: str, endpoint: Endpoint) -> Changes:
        """An application has a reader or writer, or has changed its QoS."""
        if endpoint.topic.startswith(BUILT_IN) or not any(fnmatchcase(endpoint.topic, one) for one in self._patterns):
            return Changes()
        self._endpoints[key] = endpoint
        return self._changes()

    def lost(self, key: str) -> Changes:
        """It is gone, or its liveliness is lost."""
        return self._changes() if self._endpoints.pop(key, None) is not None else Changes()

    def announced(self, gateway: str, body: bytes) -> Changes:
        """Another gateway has said what its domain has; nothing: it is gone. ValueError if it cannot be read."""
        if not body:
            self._others.pop(gateway, None)
        else:
            try:
                self._others[gateway] = _decode(body)
            except msgspec.DecodeError as wrong:
                raise ValueError(str(wrong)) from None
        return self._changes()

    # Outputs

    @property
    def announcement(self) -> bytes:
        topics: Announcement = {}
        for one in sorted(self._endpoints.values(), key=lambda each: (each.topic, each.type_name, str(each.qos))):
            known = topics.get(one.topic, Topic(one.type_name))
            if known.type_name != one.type_name:
                continue  # two types under one name: the first one counts
            known = msgspec.structs.replace(known, type=known.type or one.type)
            if one.is_writer:
                topics[one.topic] = msgspec.structs.replace(known, writes=known.writes or dict(one.qos))
            else:
                topics[one.topic] = msgspec.structs.replace(known, is_read=True)
        return msgspec.json.encode(topics, order="sorted")

    def _changes(self) -> Changes:
        told = self.announcement
        here = _decode(told)
        readers, writers = self._wanted(here)
        opened_readers = tuple(sorted(readers - self._readers))
        opened_writers = tuple(
            (route, qos) for route, qos in sorted(writers.items()) if self._writers.get(route) != qos
        )
        opened = {*opened_readers, *(route[1] for route, _ in opened_writers)}
        changes = Changes(
            tuple((name, self._type_elsewhere(here[name], name)) for name in sorted(opened) if not here[name].type),
            opened_readers,
            tuple(sorted(self._readers - readers)),
            opened_writers,
            tuple(sorted(route for route, qos in self._writers.items() if writers.get(route) != qos)),
            told if told != self._announced else None,
        )
        self._readers, self._writers, self._announced = readers, writers, told
        return changes

    def _type_elsewhere(self, ours: Topic, name: str) -> bytes:
        """As another gateway knows it."""
        told = (topics[name] for topics in self._others.values() if name in topics)
        return next((one.type for one in told if one.type and one.type_name == ours.type_name), b"")

    def _wanted(self, here: Announcement) -> tuple[set[str], dict[Route, Qos]]:
        if self._is_json:
            known = {name: topic for name, topic in here.items() if topic.type}
            written = {name for name, topic in known.items() if topic.writes is not None}
            return written, {(JSON, name): {} for name, topic in known.items() if topic.is_read}
        readers: set[str] = set()
        writers: dict[Route, Qos] = {}
        for gateway, topics in self._others.items():
            for name, there in topics.items():
                ours = here.get(name)
                if ours is None or ours.type_name != there.type_name:
                    continue
                if not ours.type and not self._type_elsewhere(ours, name):
                    continue
                if ours.writes is not None and there.is_read:
                    readers.add(name)
                if ours.is_read and there.writes is not None:
                    writers[gateway, name] = there.writes
        return readers, writers
