"""Route packing: the description of a route as a row of numbers, each in as few bytes as it needs (varint.py).

A source lists brokers in the order of its routes (route_description.py): nearly every broker stands behind the one
before it on the way. So links from one named place to the next are told by where they are missing, and latencies still
to go by how much shorter they become from one broker to the next.

    flags | incarnation | route | version | deadline us | latency us | hops | refresh, if flagged |
    reservation, if flagged |
    how many places, if flagged that the origin is the first and all are named, else:
      place of the origin | runs of places: how many, then blank and named places of each |
    a number for each named place |
    unless flagged that each place has a link from the one before, and there are no other links:
      breaks: how many, then the distance of each from the one before: named places without such a link |
      other links: how many, then start and end of each |
    kinds of links, unless all are new: runs of 4 x length + kind, in the order of the above |
    destinations: how many, then the distance of each from the one before |
    how many latencies still to go are 0 at first, then the others: by how much shorter than the one before, or behind a
    break than 0; an even number is twice that, an odd one twice the opposite, less one

What numbers stand for is told by name_table.py.
"""

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

from overlane.core.wire import varint
from overlane.core.wire.control_messages import Establish, EstablishReserved
from overlane.core.wire.message_fields import BROKERS_MAX, LINKS_MAX
from overlane.errors import ProtocolViolation

Link = tuple[int, int]

CONFINED = 1
ENCRYPTED = 2
REPEATED = 4
RESERVED = 8
CHANGED = 16
"""Not all links are new."""
WHOLE = 32
"""The origin is the first place, and all places are named."""
STRAIGHT = 64
"""The links are those from each named place to the next."""
SHARED = 128
FLAGS = CONFINED | ENCRYPTED | REPEATED | RESERVED | CHANGED | WHOLE | STRAIGHT | SHARED

KEPT, ADDED, OBSOLETE = range(3)
KIND_BITS = 2
U32_MAX = (1 << 32) - 1
VERSION_MAX = 0xFFFF
NUMBER_MAX = varint.NUMBER_MAX


class RouteNumbers(NamedTuple):
    """A description with numbers in the place of names; 0 where there is none."""

    numbers: list[int]
    message: Establish
    """Whose brokers have empty names."""
    origin: int


def pack(message: Establish, numbers: list[int]) -> bytes | None:
    """The brokers of `message` have these numbers. None if it is not in the order that is understood, or is beyond
    limits."""
    try:
        row = _row(message, numbers)
        return None if row is None or max(row) > NUMBER_MAX else varint.packed(tuple(row))
    except (ValueError, IndexError):
        return None


def _row(message: Establish, numbers: list[int]) -> list[int] | None:
    if max(message.incarnation, message.route, message.deadline_us) > U32_MAX or message.version > VERSION_MAX:
        return None
    kinds = _kinds(message)
    named = [place for place, number in enumerate(numbers) if number]
    if kinds is None or not _is_ascending(message.destinations) or len(message.ahead_us) != len(numbers):
        return None
    if min(message.ahead_us, default=0) < 0:
        return None
    chain = list(pairwise(named))
    breaks = [at for at, link in enumerate(chain, 1) if link not in kinds]
    links = [link for link in chain if link in kinds]
    others = sorted(kinds.keys() - links)
    ahead_us = [message.ahead_us[place] for place in named]
    told = [*message.destinations, *(place for link in others for place in link)]
    if sum(ahead_us) != sum(message.ahead_us) or not all(numbers[place] for place in told):
        return None
    flags = CONFINED * message.confined | ENCRYPTED * message.encrypted | REPEATED * bool(message.refresh)
    flags |= SHARED * message.shared
    flags |= RESERVED * isinstance(message, EstablishReserved) | CHANGED * (len(message.added) < 2 * len(kinds))
    origin = message.brokers.index(message.origin)
    flags |= WHOLE * (not origin and len(named) == len(numbers)) | STRAIGHT * (not breaks and not others)
    row = [flags, message.incarnation, message.route, message.version]
    row += [message.deadline_us, message.latency_us, message.hops]
    row += [message.refresh] if flags & REPEATED else []
    row += [message.reservation] if isinstance(message, EstablishReserved) else []
    row += [len(numbers)] if flags & WHOLE else [origin, *_runs(numbers)]
    row += filter(None, numbers)
    if not flags & STRAIGHT:
        row += [len(breaks), *_distances(breaks), len(others), *(place for link in others for place in link)]
    if flags & CHANGED:
        row += _kind_runs([kinds[link] for link in [*links, *others]])
    row += [len(message.destinations), *_distances(message.destinations), *_shortened(ahead_us, breaks)]
    return row


def _kinds(message: Establish) -> dict[Link, int] | None:
    """The kind of each link; None if any is told twice, or not in order."""
    kinds: dict[Link, int] = {}
    for kind, ends in ((KEPT, message.kept), (ADDED, message.added), (OBSOLETE, message.obsolete)):
        links = list(zip(ends[::2], ends[1::2], strict=True))
        if any(one >= other for one, other in pairwise(links)) or not kinds.keys().isdisjoint(links):
            return None
        kinds |= dict.fromkeys(links, kind)
    return kinds


def _is_ascending(numbers: list[int]) -> bool:
    return all(one < other for one, other in pairwise(numbers))


def _runs(numbers: list[int]) -> list[int]:
    """How many runs of blank and named places there are, and their lengths."""
    lengths, is_named = [0], False
    for number in numbers:
        if bool(number) != is_named:
            is_named = not is_named
            lengths.append(0)
        lengths[-1] += 1
    if len(lengths) % 2:
        lengths.append(0)
    return [len(lengths) // 2, *lengths]


def _distances(ascending: list[int]) -> list[int]:
    return [after - before for before, after in pairwise([0, *ascending])]


def _kind_runs(kinds: list[int]) -> list[int]:
    runs: list[int] = []
    for kind in kinds:
        if runs and runs[-1] & (1 << KIND_BITS) - 1 == kind:
            runs[-1] += 1 << KIND_BITS
        else:
            runs.append(1 << KIND_BITS | kind)
    return runs


def _shortened(ahead_us: list[int], breaks: list[int]) -> list[int]:
    zeros = next((at for at, one in enumerate(ahead_us) if one), len(ahead_us))
    row, before, broken = [zeros], 0, set(breaks)
    for at in range(zeros, len(ahead_us)):
        less = (0 if at in broken else before) - ahead_us[at]
        row.append(2 * less if less >= 0 else -2 * less - 1)
        before = ahead_us[at]
    return row


def unpack(body: bytes) -> RouteNumbers:
    """ProtocolViolation if it is no description. Whether its places and names make sense is checked with the names."""
    rest = iter(varint.all_in(body, "a description of a route"))
    try:
        found = _read(rest)
    except StopIteration:
        raise ProtocolViolation("a truncated description of a route") from None
    if next(rest, None) is not None:
        raise ProtocolViolation("a description of a route that is longer than it says")
    return found


def _read(rest: Iterator[int]) -> RouteNumbers:
    flags = _limited(next(rest), FLAGS)
    incarnation, route = _limited(next(rest), U32_MAX), _limited(next(rest), U32_MAX)
    version, deadline_us = _limited(next(rest), VERSION_MAX), _limited(next(rest), U32_MAX)
    latency_us, hops = next(rest), next(rest)
    refresh = next(rest) if flags & REPEATED else 0
    reservation = next(rest) if flags & RESERVED else 0
    origin, named, size = _read_whole(rest) if flags & WHOLE else _read_runs(rest)
    numbers = [0] * size
    for place in named:
        numbers[place] = next(rest)
    broken = set[int]() if flags & STRAIGHT else set(_read_ascending(rest))
    others = list[Link]() if flags & STRAIGHT else _read_links(rest)
    links = [link for at, link in enumerate(pairwise(named), 1) if at not in broken] + others
    kinds = _read_kinds(rest, len(links)) if flags & CHANGED else [ADDED] * len(links)
    kept, added, obsolete = (
        [
            place
            for link in sorted(link for link, kind in zip(links, kinds, strict=True) if kind == one)
            for place in link
        ]
        for one in (KEPT, ADDED, OBSOLETE)
    )
    destinations = _read_ascending(rest)
    ahead_us = _read_ahead(rest, named, broken, len(numbers))
    fields = (incarnation, route, version, [""] * len(numbers), kept, added, obsolete, destinations, ahead_us)
    marks = bool(flags & CONFINED), bool(flags & ENCRYPTED), bool(flags & SHARED)
    told = *fields, deadline_us, latency_us, hops, refresh, *marks
    message = EstablishReserved("", *told, reservation) if flags & RESERVED else Establish("", *told)
    return RouteNumbers(numbers, message, origin)


def _limited(number: int, limit: int) -> int:
    if number > limit:
        raise ProtocolViolation(f"a description of a route with {number} where at most {limit} is allowed")
    return number


def _read_whole(rest: Iterator[int]) -> tuple[int, list[int], int]:
    """The place of the origin, the places that have a name, and how many there are."""
    size = _limited(next(rest), BROKERS_MAX)
    return 0, list(range(size)), size


def _read_runs(rest: Iterator[int]) -> tuple[int, list[int], int]:
    """As `_read_whole`, where places are blank."""
    origin, named, size = next(rest), list[int](), 0
    for _ in range(_limited(next(rest), BROKERS_MAX)):
        start = size + next(rest)
        size = _limited(start + next(rest), BROKERS_MAX)
        named += range(start, size)
    return origin, named, size


def _read_ascending(rest: Iterator[int]) -> list[int]:
    count = _limited(next(rest), BROKERS_MAX)
    return list(accumulate([_limited(next(rest), BROKERS_MAX) for _ in range(count)]))


def _read_links(rest: Iterator[int]) -> list[Link]:
    count = _limited(next(rest), LINKS_MAX)
    return [(_limited(next(rest), BROKERS_MAX), _limited(next(rest), BROKERS_MAX)) for _ in range(count)]


def _read_kinds(rest: Iterator[int], count: int) -> list[int]:
    kinds: list[int] = []
    while len(kinds) < count:
        run = next(rest)
        length, kind = run >> KIND_BITS, run & (1 << KIND_BITS) - 1
        kinds += [_limited(kind, OBSOLETE)] * _limited(length, count - len(kinds))
        if not length:
            raise ProtocolViolation("a description of a route with links of no kind")
    return kinds


def _read_ahead(rest: Iterator[int], named: list[int], broken: set[int], size: int) -> list[int]:
    ahead_us, before = [0] * size, 0
    for at in range(_limited(next(rest), len(named)), len(named)):
        told = next(rest)
        less = -(told + 1 >> 1) if told & 1 else told >> 1
        before = (0 if at in broken else before) - less
        if not 0 <= before <= NUMBER_MAX:
            raise ProtocolViolation("a description of a route with a latency below zero, or beyond all")
        ahead_us[named[at]] = before
    return ahead_us
