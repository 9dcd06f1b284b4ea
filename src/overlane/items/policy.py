"""A policy: where every item runs and is mirrored, in one state of the brokers. And what can be done without a solver.

`promoted` is the first answer to a failure that the case base does not know: items whose primary is missing run on
their mirrors, which clients are connected to already. It moves nothing else. `spread_out` is the first placement of
all, while no rates are known. Both take no time; a solver improves on them afterwards.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec


class Place(msgspec.Struct, frozen=True, array_like=True):
    """`mirror` is empty where there is one broker only."""

    primary: str
    mirror: str = ""


Places = Mapping[str, Place]
"""By item."""


class ItemPolicy(msgspec.Struct, frozen=True):
    epoch: int
    places: dict[str, Place]
    failed: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    """Brokers that are drained or switched off."""
    plan: int = 0
    """The version of the plan that it follows; 0: none."""
    why: str = ""
    is_rough: bool = False
    """Whether a solver has not seen it yet."""
    risk: dict[str, float] = {}
    """Pr(V > C) of each broker, where a solver has computed it."""

    @property
    def missing(self) -> frozenset[str]:
        return frozenset(self.failed) | frozenset(self.off)


def spread_out(items: Sequence[str], brokers: Sequence[str]) -> dict[str, Place]:
    """Items in turn; the mirrors of one broker's items are spread over all others."""
    if not brokers:
        return {}
    count = len(brokers)
    places = {}
    for number, item in enumerate(items):
        primary = number % count
        step = 1 + number // count % max(1, count - 1)
        places[item] = Place(brokers[primary], brokers[(primary + step) % count] if count > 1 else "")
    return places


def promoted(places: Places, items: Sequence[str], alive: Collection[str]) -> dict[str, Place]:
    """Places on brokers that are there: what is there stays, mirrors take over, and the least used get the rest."""
    if not alive:
        return {item: places[item] for item in items if item in places}
    used = Counter(dict.fromkeys(sorted(alive), 0))
    homes: dict[str, str] = {}
    for item in items:
        place = places.get(item, Place("", ""))
        homes[item] = next((one for one in (place.primary, place.mirror) if one in used), "")
        if homes[item]:
            used[homes[item]] += 1
    result: dict[str, Place] = {}
    for item in items:
        if not homes[item]:
            homes[item] = _least(used, "")
            used[homes[item]] += 1
    for item in items:
        place, home = places.get(item, Place("", "")), homes[item]
        others = [one for one in (place.mirror, place.primary) if one in used and one != home]
        mirror = others[0] if others else _least(used, home)
        if not others and mirror:
            used[mirror] += 1
        result[item] = Place(home, mirror)
    return result


def _least(used: Counter[str], but: str) -> str:
    return min((one for one in used if one != but), key=lambda one: (used[one], one), default="")


def is_sound(places: Places, items: Collection[str], alive: Collection[str]) -> bool:
    """Whether every item has a primary that is there, and a mirror that is another one, if there are two."""
    return all(
        item in places
        and places[item].primary in alive
        and (places[item].mirror in alive if len(alive) > 1 else not places[item].mirror)
        and places[item].primary != places[item].mirror
        for item in items
    )


def moves(before: Places, after: Places) -> list[str]:
    """The items whose brokers differ, sorted."""
    return sorted(item for item in after if before.get(item) != after[item])
