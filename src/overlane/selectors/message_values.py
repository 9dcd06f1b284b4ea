"""The names of a message in a selector.

    temperature, room.floor, readings.0.value   a field of the JSON payload; if there is none, the user property
    $payload.temperature                        a field of the JSON payload, and nothing else
    $property.site                              a user property: the first of that name; always a string
    $topic, $level.1                            the topic, and its levels, counted from 1
    $content_type, $qos, $retain                what the publisher said of the message

Numbers in a path count the items of an array, from 0. What is not there is NULL, as is JSON's null. The payload is
decoded at most once, and only if a name needs it; a very large one is not decoded at all.
"""

from collections.abc import Callable
from functools import lru_cache

import msgspec

from overlane.selectors.lexer import split_name
from overlane.selectors.selector import Match, Selector

PAYLOAD_BYTES_MAX = 1 << 20
"""A larger payload is treated as if it were not JSON: to decode it would hold up everything else."""

_decode = msgspec.json.Decoder().decode
_NOT_READ: object = object()
UNREADABLE: object = object()
"""Instead of a payload that is not in the format that is expected."""
_parts = lru_cache(maxsize=4096)(split_name)


class MessageValues:
    """The values of one message, as `Selector.matches` asks for them."""

    __slots__ = (
        "_content_type",
        "_json",
        "_payload",
        "_properties",
        "_qos",
        "_read",
        "_retain",
        "_topic",
        "needs_json",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        properties: tuple[tuple[str, str], ...] = (),
        content_type: str | None = None,
        qos: int = 0,
        retain: bool = False,
        read: Callable[[bytes], object] | None = None,
    ) -> None:
        """`read`: decodes a payload of another format than JSON, or says UNREADABLE."""
        self._topic = topic
        self._payload = payload
        self._properties = properties
        self._content_type = content_type
        self._qos = qos
        self._retain = retain
        self._json: object = _NOT_READ
        self._read = read or _read
        self.needs_json = False
        """Whether a value of the latest selector was NULL because the payload is not JSON."""

    def matched_by(self, selector: Selector) -> Match:
        """As `Selector.matches`, and tells apart that the payload is not JSON."""
        self.needs_json = False
        found = selector.matches(self)
        return Match.NOT_JSON if found is not Match.TRUE and self.needs_json else found

    def get(self, name: str, /) -> object:
        first, *rest = _parts(name)
        match first:
            case "$payload":
                found = self._field(rest)
            case "$property":
                return self._property(".".join(rest))
            case "$topic" if not rest:
                return self._topic
            case "$level" if len(rest) == 1:
                return self._level(rest[0])
            case "$content_type" if not rest:
                return self._content_type
            case "$qos" if not rest:
                return self._qos
            case "$retain" if not rest:
                return self._retain
            case _:
                found = self._field([first, *rest])
                if found is None:
                    found = self._property(".".join([first, *rest]))
        if found is None and self._json is UNREADABLE:
            self.needs_json = True
        return found

    def _property(self, name: str) -> str | None:
        return next((value for one, value in self._properties if one == name), None)

    def _level(self, number: str) -> str | None:
        levels = self._topic.split("/")
        return levels[int(number) - 1] if _is_index(number) and 1 <= int(number) <= len(levels) else None

    def _field(self, path: list[str]) -> object:
        found = self._decoded()
        for part in path:
            if isinstance(found, dict):
                found = found.get(part)
            elif isinstance(found, list) and _is_index(part) and int(part) < len(found):
                found = found[int(part)]
            else:
                return None
        return found

    def _decoded(self) -> object:
        if self._json is _NOT_READ:
            self._json = self._read(self._payload)
        return self._json


def _read(payload: bytes) -> object:
    """The value of a JSON text; UNREADABLE if it is none."""
    if not payload or len(payload) > PAYLOAD_BYTES_MAX:
        return UNREADABLE
    try:
        return _decode(payload)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return UNREADABLE


def _is_index(part: str) -> bool:
    return part.isdecimal() and part.isascii() and len(part) <= 9
