"""MQTT topics and filters: what is well formed, what matches what, and the table that answers it for many filters.

A topic is a path of levels divided by slashes; any level may be empty. In a filter, `+` stands for exactly one
level and a final `#` for any number of them, none included: `a/#` matches `a`. Topics that begin with `$` belong to
a server and are matched only by filters that begin with a literal level (MQTT 5, section 4.7).

`FilterTrie` keeps all filters in one dictionary, where a topic finds the filter that is equal to it, and those with
wildcards in a tree of levels besides. Matching walks the tree one level of the topic at a time and keeps the set of
nodes reached so far, so the time grows with the wildcards on the way, not with the number of filters. Removal takes
away the branches that became empty: the tree depends only on what is in it, not on what was in it before.

`matches`, `covers`, `specificity` and the trie expect well-formed input; `check_topic` and `check_filter` stand at
the border.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from overlane.errors import OverlaneError

BYTES_MAX = 65_535
"""The longest string that MQTT can carry."""


class BadTopic(OverlaneError, ValueError):
    """A topic or filter that MQTT does not allow."""

    error_code = "OVL-109"


LEVELS_FREE = 16
LEVEL_BYTES = 400
"""What each level beyond the first ones takes in a tree of topics or filters, about: far more than its text."""


def deep_bytes(topic: str) -> int:
    """What the levels of a topic or filter take in a tree, beside its text, where they are unusually many."""
    return max(0, topic.count("/") + 1 - LEVELS_FREE) * LEVEL_BYTES


def check_topic(topic: str) -> None:
    _check_string(topic, "topic")
    for wildcard in "+#":
        if wildcard in topic:
            raise BadTopic(f"topic {_shown(topic)}: `{wildcard}` is allowed only in filters")


def check_filter(topic_filter: str) -> None:
    _check_string(topic_filter, "filter")
    if "#" in topic_filter[:-1]:
        raise BadTopic(f"filter {_shown(topic_filter)}: `#` is allowed only as the whole last level")
    if topic_filter.endswith("#") and topic_filter != "#" and not topic_filter.endswith("/#"):
        raise BadTopic(f"filter {_shown(topic_filter)}: `#` is allowed only as the whole last level")
    if "+" in topic_filter and any("+" in level and level != "+" for level in topic_filter.split("/")):
        raise BadTopic(f"filter {_shown(topic_filter)}: `+` is allowed only as a whole level")


def _check_string(text: str, what: str) -> None:
    if not text:
        raise BadTopic(f"the {what} is empty: at least one character is needed")
    if "\0" in text:
        raise BadTopic(f"{what} {_shown(text)}: the character U+0000 is not allowed")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BadTopic(f"{what} {_shown(text)}: not valid Unicode at character {error.start}") from None
    if size > BYTES_MAX:
        raise BadTopic(f"{what} {_shown(text)}: {size} bytes in UTF-8, at most {BYTES_MAX} are allowed")


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:57] + "...")


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a subscription to the filter gets what is published on the topic."""
    if topic.startswith("$") and topic_filter[0] in "+#":
        return False
    levels = topic.split("/")
    for depth, wanted in enumerate(topic_filter.split("/")):
        if wanted == "#":
            return True
        if depth == len(levels) or (wanted != "+" and wanted != levels[depth]):
            return False
    return topic_filter.count("/") + 1 == len(levels)


def covers(wide: str, narrow: str) -> bool:
    """Whether every topic that `narrow` matches is matched by `wide` too."""
    if wide[0] in "+#" and narrow.startswith("$"):
        return False
    if narrow == "#":
        # A topic has at least one level, so these two match the same topics.
        return wide in ("#", "+/#")
    narrow_levels = narrow.split("/")
    wide_levels = wide.split("/")
    for depth, wanted in enumerate(wide_levels):
        if wanted == "#":
            return True
        if depth == len(narrow_levels):
            return False
        given = narrow_levels[depth]
        if given != wanted and (wanted != "+" or given == "#"):
            return False
    return len(wide_levels) == len(narrow_levels)


def overlaps(one: str, other: str) -> bool:
    """Whether there is a topic that both filters match."""
    if (one[0] in "+#" and other.startswith("$")) or (other[0] in "+#" and one.startswith("$")):
        return False
    levels, other_levels = one.split("/"), other.split("/")
    for depth in range(max(len(levels), len(other_levels)) + 1):
        ends = [depth < len(some) and some[depth] == "#" for some in (levels, other_levels)]
        if any(ends):
            return True
        if depth >= len(levels) or depth >= len(other_levels):
            return depth == len(levels) == len(other_levels)
        if levels[depth] != other_levels[depth] and "+" not in (levels[depth], other_levels[depth]):
            return False
    return True


_ANY, _END, _ONE, _LITERAL = range(4)


def specificity(topic_filter: str) -> tuple[int, ...]:
    """A sort key: the more a filter says, the greater.

    Compared level by level: a literal level says more than `+`, and that more than the end of the filter, and that more
    than `#`. Two different filters that match the same topic never have the same key.
    """
    kinds = [_ANY if level == "#" else _ONE if level == "+" else _LITERAL for level in topic_filter.split("/")]
    return (*kinds, _END) if kinds[-1] != _ANY else tuple(kinds)


T = TypeVar("T", bound=Hashable)


class _Node(Generic[T]):
    """What follows one prefix of the filters with wildcards. `here` ends at this level, `below` is its `#`."""

    __slots__ = ("below", "children", "here", "plus")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] | None = None
        self.plus: _Node[T] | None = None
        self.here: dict[T, None] | None = None
        self.below: dict[T, None] | None = None

    def child(self, level: str) -> "_Node[T] | None":
        if level == "+":
            return self.plus
        return self.children.get(level) if self.children is not None else None

    def grow(self, level: str) -> "_Node[T]":
        node = self.child(level)
        if node is not None:
            return node
        node = _Node()
        if level == "+":
            self.plus = node
        elif self.children is None:
            self.children = {level: node}
        else:
            self.children[level] = node
        return node

    def cut(self, level: str) -> None:
        if level == "+":
            self.plus = None
        elif self.children is not None:
            del self.children[level]
            if not self.children:
                self.children = None

    def is_bare(self) -> bool:
        return self.children is None and self.plus is None and self.here is None and self.below is None


class FilterTrie(Generic[T]):
    """Values under filters; `match` finds those whose filter matches a topic."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._values: dict[str, dict[T, None]] = {}
        self._len = 0

    def __len__(self) -> int:
        """The number of (filter, value) pairs."""
        return self._len

    def __contains__(self, topic_filter: object) -> bool:
        return topic_filter in self._values

    def filters(self) -> Iterator[str]:
        """Each filter once, in the order in which they came."""
        return iter(self._values)

    def values_of(self, topic_filter: str) -> list[T]:
        """The values under exactly this filter, in the order in which they came."""
        return list(self._values.get(topic_filter, ()))

    def add(self, topic_filter: str, value: T) -> bool:
        """True if this value was not yet under this filter."""
        values = self._values.get(topic_filter)
        if values is None:
            values = self._values[topic_filter] = {}
            self._plant(topic_filter, values)
        elif value in values:
            return False
        values[value] = None
        self._len += 1
        return True

    def remove(self, topic_filter: str, value: T) -> bool:
        """True if this value was under this filter."""
        values = self._values.get(topic_filter)
        if values is None or value not in values:
            return False
        del values[value]
        self._len -= 1
        if not values:
            del self._values[topic_filter]
            self._prune(topic_filter)
        return True

    def match(self, topic: str) -> list[T]:
        """The values under all filters that match, each once.

        First those of the filter equal to the topic, then by the level at which the filter ends or has its `#`; those
        under one filter in the order in which they came.
        """
        exact = self._values.get(topic)
        found = [] if exact is None else [exact]
        levels = topic.split("/")
        frontier = [self._root]
        if topic.startswith("$"):
            first = self._root.child(levels.pop(0))
            frontier = [] if first is None else [first]
        for level in levels:
            reached: list[_Node[T]] = []
            for node in frontier:
                if node.below is not None:
                    found.append(node.below)
                if node.children is not None:
                    child = node.children.get(level)
                    if child is not None:
                        reached.append(child)
                if node.plus is not None:
                    reached.append(node.plus)
            frontier = reached
            if not frontier:
                break
        for node in frontier:
            if node.here is not None:
                found.append(node.here)
            if node.below is not None:
                found.append(node.below)
        if len(found) == 1:
            return list(found[0])
        return list({value: None for values in found for value in values})

    def _plant(self, topic_filter: str, values: dict[T, None]) -> None:
        if "+" not in topic_filter and "#" not in topic_filter:
            return
        node = self._root
        levels = topic_filter.split("/")
        is_open = levels[-1] == "#"
        for level in levels[:-1] if is_open else levels:
            node = node.grow(level)
        if is_open:
            node.below = values
        else:
            node.here = values

    def _prune(self, topic_filter: str) -> None:
        if "+" not in topic_filter and "#" not in topic_filter:
            return
        branch: list[tuple[_Node[T], str]] = []
        node = self._root
        levels = topic_filter.split("/")
        is_open = levels[-1] == "#"
        for level in levels[:-1] if is_open else levels:
            branch.append((node, level))
            child = node.child(level)
            if child is None:
                raise AssertionError(f"filter {_shown(topic_filter)} is not in the tree")
            node = child
        if is_open:
            node.below = None
        else:
            node.here = None
        while branch and node.is_bare():
            node, level = branch.pop()
            node.cut(level)
