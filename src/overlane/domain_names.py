"""Domain names: topics under the names of one domain (local) and of the overlay; pure.

A rule pairs two filters, as in `topic_names`. In a domain every topic should have a name in the overlay, and rules may
overlap where one is an exception of another:

    local             overlay              local name        overlay name
    #                 plant/#              press/1           plant/press/1
    alarms/#          alarms/#             alarms/fire       alarms/fire

Of several rules whose filters match a name, the narrowest counts. A local name and a name of the overlay belong
together if the same rule counts for both of them, and translates one to the other. So no name has two translations, and
no two names have the same one, whatever the rules are. Topics that no rule has keep their names: that is a last rule,
from `#` to `#`. A name may have no counterpart: with the rules above, `weather/1` of the overlay would be `weather/1`
in the domain, and that is the local name of `plant/weather/1`.

Two filters of one side that overlap, and neither of which is narrower, are ambiguous (`unclear`).

Filters are translated too (`filters_to_overlay`). What results matches all that is needed, and sometimes more.

Names that begin with `$` are those of brokers, and are not translated here.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations

from overlane.core.topics import covers, matches
from overlane.topic_names import KNOWN_MAX, Ambiguity, NameRule, overlaps, translated, with_levels

SAME = NameRule("#", "#")
"""What holds for all other topics."""

_Side = Callable[[NameRule], str]


def unclear(rules: Sequence[NameRule]) -> Iterator[Ambiguity]:
    """Pairs of rules of which neither is narrower, by their places."""
    for (first, one), (second, other) in combinations(enumerate(rules), 2):
        for side in ("local", "overlay"):
            ours, its = getattr(one, side), getattr(other, side)
            if overlaps(ours, its) and covers(ours, its) == covers(its, ours):
                yield Ambiguity(first, second, side)


class DomainNames:
    """The rules of one domain, which are not ambiguous."""

    def __init__(self, rules: Iterable[NameRule]) -> None:
        rules = tuple(rules)
        self._by_local = (*_narrow_first(rules, _local), SAME)
        self._by_overlay = (*_narrow_first(rules, _overlay), SAME)
        self._known_out: dict[str, str | None] = {}
        self._known_in: dict[str, str | None] = {}

    def to_overlay(self, local: str) -> str | None:
        """None if a topic has no name in the overlay."""
        try:
            return self._known_out[local]
        except KeyError:
            found = _counterpart(local, self._by_local, _local, self._by_overlay, _overlay)
            return _remember(self._known_out, local, found)

    def to_local(self, overlay: str) -> str | None:
        """None if a topic of the overlay has no name in the domain."""
        try:
            return self._known_in[overlay]
        except KeyError:
            found = _counterpart(overlay, self._by_overlay, _overlay, self._by_local, _local)
            return _remember(self._known_in, overlay, found)

    def filters_to_overlay(self, local: str) -> tuple[str, ...]:
        """Filters of the overlay that together match the counterpart of every topic that a filter matches."""
        return _images(local, self._by_local, _local, self._by_overlay, _overlay)

    def filters_to_local(self, overlay: str) -> tuple[str, ...]:
        return _images(overlay, self._by_overlay, _overlay, self._by_local, _local)

    def exact_to_overlay(self, local: str) -> str | None:
        """The filter that matches the counterparts of all topics that a filter matches, and nothing else; None if
        not all have one by the same rule. A name that would be empty, or begin with `$`, does not count."""
        return _exact(local, self._by_local, _local, self._by_overlay, _overlay)

    def exact_to_local(self, overlay: str) -> str | None:
        return _exact(overlay, self._by_overlay, _overlay, self._by_local, _local)


def _local(rule: NameRule) -> str:
    return rule.local


def _overlay(rule: NameRule) -> str:
    return rule.overlay


def _narrow_first(rules: Sequence[NameRule], side: _Side) -> list[NameRule]:
    """A filter is covered by more others than any that covers it."""
    return sorted(rules, key=lambda rule: -sum(covers(side(other), side(rule)) for other in rules))


def _counterpart(
    name: str, sources: Sequence[NameRule], source: _Side, targets: Sequence[NameRule], target: _Side
) -> str | None:
    if name.startswith("$"):
        return name
    rule = next(one for one in sources if matches(source(one), name))
    found = translated(name, source(rule), target(rule))
    if found is None or found.startswith("$"):
        return None
    return found if next(one for one in targets if matches(target(one), found)) is rule else None


def _images(
    topic_filter: str, sources: Sequence[NameRule], source: _Side, targets: Sequence[NameRule], target: _Side
) -> tuple[str, ...]:
    if topic_filter.startswith("$"):
        return (topic_filter,)
    found: list[str] = []
    for at, rule in enumerate(sources):
        common = intersection(topic_filter, source(rule))
        if common is None or any(covers(source(one), common) for one in sources[:at]):
            continue
        image = _image(common, source(rule), target(rule))
        if image is None:
            continue
        narrower = targets[: targets.index(rule)]
        if not any(covers(target(one), image) for one in narrower):
            found.append(image)
    wide = [one for one in found if not any(other != one and covers(other, one) for other in found)]
    return tuple(dict.fromkeys(wide))


def _exact(
    topic_filter: str, sources: Sequence[NameRule], source: _Side, targets: Sequence[NameRule], target: _Side
) -> str | None:
    if topic_filter.startswith("$"):
        return topic_filter
    rule = next(one for one in sources if overlaps(source(one), topic_filter))
    common = intersection(topic_filter, source(rule))
    if common is None or not covers(source(rule), topic_filter):
        return None
    image = _image(common, source(rule), target(rule))
    if image is None or next(one for one in targets if overlaps(target(one), image)) is not rule:
        return None
    return image


def intersection(one: str, other: str) -> str | None:
    """The filter that matches the topics that both filters match; None if there are none."""
    ours, others = one.split("/"), other.split("/")
    levels: list[str] = []
    for depth in range(max(len(ours), len(others))):
        if ours[depth : depth + 1] == ["#"]:
            levels += others[depth:]
            break
        if others[depth : depth + 1] == ["#"]:
            levels += ours[depth:]
            break
        if depth >= len(ours) or depth >= len(others):
            return None
        mine, its = ours[depth], others[depth]
        if mine != its and "+" not in (mine, its):
            return None
        levels.append(its if mine == "+" else mine)
    if levels[0].startswith("$") and (one[0] in "+#" or other[0] in "+#"):
        return None
    return "/".join(levels)


def _image(narrow: str, source: str, target: str) -> str | None:
    """The counterpart of a filter that `source` covers; None if no topic can have it."""
    found = with_levels(narrow, source, target)
    return None if not found or found.startswith("$") else found


def _remember(known: dict[str, str | None], name: str, found: str | None) -> str | None:
    if len(known) >= KNOWN_MAX:
        known.clear()
    known[name] = found
    return found
