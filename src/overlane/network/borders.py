"""What the rules of [[federation]] close, in words: the first rule for a direction closes it for everything else."""

from collections.abc import Iterable

from overlane.core.federation import ANYONE, Passage
from overlane.network.classes import federation
from overlane.network.schema import Network

NAMED_MAX = 3
EVERYTHING = "#"


def closed_by_rules(network: Network, name: str) -> list[str]:
    """A sentence for each direction that rules close for a broker; none where they allow everything."""
    rules, others = federation(network, name), [one.name for one in network.brokers if one.name != name]
    told = []
    for verb, passages in (("leave", rules.leave), ("enter", rules.enter)):
        if passages is None:
            continue
        allowed = _allowed(passages, others)
        if set(allowed) != {(EVERYTHING,)}:
            preposition = "for" if verb == "leave" else "from"
            groups = sorted(allowed.items(), key=lambda one: (one[0] == (EVERYTHING,), one[0]))
            words = "; ".join(_words(filters, preposition, names) for filters, names in groups)
            told.append(f"[[federation]]: may {verb}: {words or 'nothing'}")
    return told


def _allowed(passages: Iterable[Passage], others: Iterable[str]) -> dict[tuple[str, ...], list[str]]:
    """The brokers by what may cross to or from them."""
    found: dict[tuple[str, ...], list[str]] = {}
    for other in others:
        filters = {one for passage in passages if passage.broker in (ANYONE, other) for one in passage.filters}
        key = (EVERYTHING,) if EVERYTHING in filters else tuple(sorted(filters))
        found.setdefault(key, []).append(other)
    return found


def _words(filters: tuple[str, ...], preposition: str, names: list[str]) -> str:
    what = "everything" if filters == (EVERYTHING,) else ", ".join(filters) or "nothing"
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{what} {preposition} {', '.join(names[:NAMED_MAX])}{more}"
