"""Topic names: one message under two names, of a domain or foreign broker (local) and of the overlay; pure.

A rule pairs two filters that have the same wildcards in the same order. A topic that matches one filter has its levels
in place of the wildcards put into the other:

    local             overlay              local name        overlay name
    #                 plant/#              press/3/temp      plant/press/3/temp      a prefix
    +/alarm           alarms/plant/+       press/alarm       alarms/plant/press      a pattern
    sensors/#         sensors/#            sensors/1         sensors/1               the same name

`#` stands for any number of levels, none included, where a name remains. As in MQTT, a filter that begins with a
wildcard has nothing to do with names that begin with `$`.

In each direction the filters of one side must not overlap, neither where messages come from nor where they go:
otherwise a name would have two translations, or two names would become one. `ambiguities` finds such pairs. Rules
without any translate each name to one name and back, and different names to different names.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Literal, NamedTuple, TypeAlias, get_args

from overlane.core.topics import BYTES_MAX, matches

Direction: TypeAlias = Literal["both", "in", "out"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
"""`in`: from the local names to the overlay."""

KNOWN_MAX = 10_000
"""Translations that are remembered in each direction."""


class NameRule(NamedTuple):
    local: str
    overlay: str
    direction: Direction = "both"


class Ambiguity(NamedTuple):
    """Two rules of which each could translate the same name."""

    first: int
    second: int
    side: str
    """`local` or `overlay`: which of their filters overlap."""


def are_alike(local: str, overlay: str) -> bool:
    """Whether both filters have the same wildcards in the same order, so that they can be a rule."""
    return _wildcards(local) == _wildcards(overlay)


def overlaps(one: str, other: str) -> bool:
    """Whether some topic matches both filters."""
    if (one[0] in "+#" and other.startswith("$")) or (other[0] in "+#" and one.startswith("$")):
        return False
    ours, others = one.split("/"), other.split("/")
    for mine, its in zip(ours, others, strict=False):
        if "#" in (mine, its):
            return True
        if mine != its and "+" not in (mine, its):
            return False
    short, long = sorted((ours, others), key=len)
    return len(short) == len(long) or long[len(short)] == "#"


def ambiguities(rules: Sequence[NameRule]) -> Iterator[Ambiguity]:
    """Each pair of rules once, by their places."""
    for (first, one), (second, other) in combinations(enumerate(rules), 2):
        if {one.direction, other.direction} == {"in", "out"}:
            continue
        if overlaps(one.local, other.local):
            yield Ambiguity(first, second, "local")
        elif overlaps(one.overlay, other.overlay):
            yield Ambiguity(first, second, "overlay")


def with_levels(name: str, source: str, target: str) -> str:
    """`target` with its wildcards replaced by the levels of a name, or of a filter, that `source` covers."""
    levels, wanted = name.split("/"), source.split("/")
    taken = iter([level for level, one in zip(levels, wanted, strict=False) if one == "+"])
    result: list[str] = []
    for one in target.split("/"):
        if one == "+":
            result.append(next(taken))
        elif one == "#":
            result += levels[len(wanted) - 1 :]
        else:
            result.append(one)
    return "/".join(result)


def translated(topic: str, source: str, target: str) -> str | None:
    """The topic's name under `target`; None if it does not match `source`, or no valid name results."""
    if not matches(source, topic):
        return None
    name = with_levels(topic, source, target)
    if not name or (target[0] in "+#" and name.startswith("$")) or len(name.encode()) > BYTES_MAX:
        return None
    return name


class TopicNames:
    """The rules of one domain or gateway. A name that no rule has does not cross."""

    def __init__(self, rules: Iterable[NameRule]) -> None:
        rules = tuple(rules)
        self._inwards = tuple((rule.local, rule.overlay) for rule in rules if rule.direction != "out")
        self._outwards = tuple((rule.overlay, rule.local) for rule in rules if rule.direction != "in")
        self._known_in: dict[str, str | None] = {}
        self._known_out: dict[str, str | None] = {}

    @property
    def local_filters(self) -> tuple[str, ...]:
        """What comes into the overlay, by its local names."""
        return tuple(source for source, _ in self._inwards)

    @property
    def overlay_filters(self) -> tuple[str, ...]:
        """What goes out, by its names in the overlay."""
        return tuple(source for source, _ in self._outwards)

    def to_overlay(self, local: str) -> str | None:
        return _found(local, self._inwards, self._known_in)

    def to_local(self, overlay: str) -> str | None:
        return _found(overlay, self._outwards, self._known_out)

    def reply_to_local(self, overlay: str) -> str | None:
        """Under which local name a response comes into the overlay under this one."""
        return next((name for source, to in self._inwards if (name := translated(overlay, to, source))), None)

    def reply_to_overlay(self, local: str) -> str | None:
        """Under which name of the overlay a response goes out under this one."""
        return next((name for source, to in self._outwards if (name := translated(local, to, source))), None)


def _found(topic: str, rules: Sequence[tuple[str, str]], known: dict[str, str | None]) -> str | None:
    try:
        return known[topic]
    except KeyError:
        pass
    name = next((name for source, target in rules if (name := translated(topic, source, target)) is not None), None)
    if len(known) >= KNOWN_MAX:
        known.clear()
    known[topic] = name
    return name


def _wildcards(topic_filter: str) -> list[str]:
    return [level for level in topic_filter.split("/") if level in ("+", "#")]
