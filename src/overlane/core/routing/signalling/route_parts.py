"""Route parts: what a next hop must know of the description of a route.

A description names every broker of a route. Where each of them is reached by one link, a broker needs only those on the
way to it, over which answers return, and those behind it. The others are left blank on the way: their names are empty,
so that all brokers know one by the same place, and confirmations can name places. Latencies still to go are told of the
next hop and of brokers behind it. The farther a description has come, the shorter it is.

    source -- a -- b -- c        to a:  source a b c "" ""
       \\-- d -- e               to d:  source "" "" "" d e

A route with several links into one broker is passed on whole, and so is a change that makes links obsolete: brokers
that are reached twice would be told different parts.
"""

from collections.abc import Iterator

from msgspec import structs

from overlane.core.wire.control_messages import Establish


def part_for(message: Establish, hop: str) -> Establish:
    """The part of a description that concerns a next hop, and those behind it."""
    before = _tree(message)
    if before is None:
        return message
    brokers = message.brokers
    place, origin = brokers.index(hop), brokers.index(message.origin)
    there = [place]
    while there[-1] != origin:
        previous = before.get(there[-1])
        if previous is None or len(there) > len(brokers):
            return message  # not connected with its source: nobody can tell what is behind it, which may be a circle
        there.append(previous)
    onward: dict[int, list[int]] = {}
    for end, start in before.items():
        onward.setdefault(start, []).append(end)
    behind = [place]
    for one in behind:
        behind += onward.get(one, ())
    wanted, leads_to = {*behind, *there}, set(behind)
    places = range(max(wanted) + 1)
    ahead_us = [message.ahead_us[one] if one in leads_to else 0 for one in places]
    if len(wanted) == len(brokers):
        return message if ahead_us == message.ahead_us else structs.replace(message, ahead_us=ahead_us)
    return structs.replace(
        message,
        brokers=[brokers[one] if one in wanted else "" for one in places],
        kept=_links_between(message.kept, wanted),
        added=_links_between(message.added, wanted),
        destinations=[one for one in message.destinations if one in leads_to],
        ahead_us=ahead_us,
    )


def _tree(message: Establish) -> dict[int, int] | None:
    """The broker before each, by places, if there is one way to each; None if not, or if links become obsolete."""
    if message.obsolete:
        return None
    before: dict[int, int] = {}
    for start, end in _pairs([*message.kept, *message.added]):
        if end in before or message.brokers[end] == message.origin:
            return None
        before[end] = start
    return before


def _links_between(links: list[int], wanted: set[int]) -> list[int]:
    return [place for link in _pairs(links) if wanted.issuperset(link) for place in link]


def _pairs(links: list[int]) -> Iterator[tuple[int, int]]:
    return zip(links[::2], links[1::2], strict=True)
