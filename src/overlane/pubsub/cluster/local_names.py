"""Local names: translation of what crosses the border between this service and the overlay, where a domain has names
of its own (`overlane.domain_names`).

All that clients say and hear, and all that is kept for them, has local names: subscriptions, retained messages,
streams, wills, access rights. All that the overlay carries has its own. What is translated:

    topics, and the response topics of requests
    what is in cluster names (`names`): the topic of a retained message, the filters of announcements
    the tags of shared subscriptions, which are digests of their filters
"""

from collections.abc import Callable

from overlane.domain_names import DomainNames
from overlane.pubsub.cluster import envelope
from overlane.pubsub.cluster.names import (
    ADVERTISED,
    HANDOUT,
    RESERVE,
    RETAINED,
    SEEK,
    SHARE,
    WANT,
    read_share_name,
    share_name,
)
from overlane.pubsub.properties import RESPONSE_TOPIC, decode_length, decode_with_expiry, encode_expiry, encode_length

REPORTS = "$overlane/liveliness/", "$overlane/period/", "$overlane/incompatible/"
_STAMP_BYTES = 8
_TAG_RESPONSE = bytes((RESPONSE_TOPIC,))

Rename = Callable[[str], str | None]


class _Tags:
    """The tags of filters of shared subscriptions, as long as such a filter is known."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int]] = {}

    def note(self, tag: str, other: str, is_known: bool) -> None:
        count = self._known.get(tag, (other, 0))[1] + (1 if is_known else -1)
        if count > 0:
            self._known[tag] = other, count
        else:
            self._known.pop(tag, None)

    def of(self, tag: str) -> str | None:
        found = self._known.get(tag)
        return None if found is None else found[0]


class LocalNames:
    def __init__(self, names: DomainNames) -> None:
        self.names = names
        self._tags_out, self._tags_in = _Tags(), _Tags()

    # Topics

    def to_overlay(self, name: str) -> str | None:
        """The overlay's name for a topic, or for a cluster name with a topic in it."""
        if not name.startswith("$"):
            return self.names.to_overlay(name)
        return _within(name, self.names.to_overlay, self._tags_out)

    def to_local(self, name: str) -> str | None:
        if not name.startswith("$"):
            return self.names.to_local(name)
        return _within(name, self.names.to_local, self._tags_in)

    # Filters

    def filters_to_overlay(self, name: str) -> tuple[str, ...]:
        """Filters of the overlay for a filter, or for a cluster name with a filter in it."""
        return _filters(name, self.names.filters_to_overlay, self.names.exact_to_overlay)

    def filters_to_local(self, name: str) -> tuple[str, ...]:
        return _filters(name, self.names.filters_to_local, self.names.exact_to_local)

    def note_group(self, local: str, overlay: str, is_known: bool) -> None:
        """Two names under which members of a shared subscription are announced."""
        local_tag, overlay_tag = read_share_name(local)[2], read_share_name(overlay)[2]
        self._tags_out.note(local_tag, overlay_tag, is_known)
        self._tags_in.note(overlay_tag, local_tag, is_known)

    # Bodies

    def body_to_overlay(self, name: str, flags: int, body: bytes) -> bytes:
        return _with_response(name, flags, body, self.names.to_overlay)

    def body_to_local(self, name: str, flags: int, body: bytes) -> bytes:
        """Unchanged if it cannot be read."""
        try:
            return _with_response(name, flags, body, self.names.to_local)
        except (ValueError, IndexError):
            return body

    def properties_to_overlay(self, encoded: bytes) -> bytes:
        return _renamed_response(encoded, self.names.to_overlay)

    def properties_to_local(self, encoded: bytes) -> bytes:
        return _renamed_response(encoded, self.names.to_local)


def _parts(name: str, levels: int) -> tuple[str, str]:
    """The first levels, with the slash behind them, and the rest."""
    parts = name.split("/", levels)
    rest = parts.pop() if len(parts) > levels else ""
    return name[: len(name) - len(rest)], rest


def _levels_before(name: str) -> int:
    """How many levels a name has before the topic or filter in it; 0 if there is none in it."""
    if name.startswith((RETAINED, ADVERTISED, RESERVE, SEEK)):
        return 1
    if name.startswith((HANDOUT, *REPORTS)):
        return 2
    return 3 if name.startswith(WANT) else 0


def _within(name: str, rename: Rename, tags: _Tags) -> str | None:
    if name.startswith(SHARE):
        try:
            group, broker, tag, topic = read_share_name(name)
        except ValueError:
            return None
        found, new_tag = rename(topic), tags.of(tag)
        return None if found is None or new_tag is None else f"{SHARE}{group}/{broker}/{new_tag}/{found}"
    levels = _levels_before(name)
    if not levels:
        return name
    before, topic = _parts(name, levels)
    found = rename(topic) if topic else topic
    return None if found is None else before + found


def _filters(name: str, images: Callable[[str], tuple[str, ...]], exact: Rename) -> tuple[str, ...]:
    if not name.startswith("$"):
        return images(name)
    if name.startswith(SHARE):
        try:
            group, broker, _, topic_filter = read_share_name(name)
        except ValueError:
            return ()
        found = exact(topic_filter)
        return () if found is None else (share_name(group, broker, found, found),)
    levels = _levels_before(name)
    if not levels:
        return (name,)
    before, topic_filter = _parts(name, levels)
    if name.startswith((RETAINED, HANDOUT)) or not topic_filter:
        return (name,)  # of everything
    return tuple(before + one for one in images(topic_filter))


def _with_response(name: str, flags: int, body: bytes, rename: Rename) -> bytes:
    """ValueError or IndexError if the properties cannot be read."""
    if not flags & envelope.PROPERTIES or _TAG_RESPONSE not in body:
        return body
    at = _STAMP_BYTES if name.startswith((RETAINED, HANDOUT)) else 0
    length, start = decode_length(body[at:])
    start += at
    encoded = body[start : start + length]
    renamed = _renamed_response(encoded, rename)
    if renamed is encoded:
        return body
    return body[:at] + encode_length(len(renamed)) + renamed + body[start + length :]


def _renamed_response(encoded: bytes, rename: Rename) -> bytes:
    if _TAG_RESPONSE not in encoded:
        return encoded
    values, expiry_s = decode_with_expiry(encoded)
    topic = values.response_topic
    new = None if topic is None else rename(topic)
    if new is None or new == topic:
        return encoded
    properties = values._replace(response_topic=new).encode()
    return properties if expiry_s is None else encode_expiry(expiry_s) + properties
