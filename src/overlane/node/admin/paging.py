"""A page of a long list, computed without blocking the event loop.

A broker may have a hundred thousand sessions, of which an operator views fifty. The entries are examined a few hundred
at a time, and the event loop runs in between. So entries may change while a page is computed, but consecutive pages
(`after`) neither repeat nor omit entries that remain.
"""

import asyncio
from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

PIECE = 500
"""Things looked at in one go: well below a millisecond."""

Thing = TypeVar("Thing")


class Page(NamedTuple, Generic[Thing]):
    items: list[Thing]
    total: int
    """How many there are in all, those on other pages included."""
    has_more: bool


async def in_pieces(things: Iterable[Thing], visit: Callable[[list[Thing]], object]) -> None:
    """Show all of them to `visit`, a piece at a time; the loop works in between."""
    rest = iter(things)
    while piece := list(islice(rest, PIECE)):
        visit(piece)
        await asyncio.sleep(0)


async def page(
    things: Iterable[Thing],
    order: Callable[[Thing], Any],
    limit: int,
    *,
    after: Any = None,
    matches: Callable[[Thing], bool],
) -> Page[Thing]:
    """The first `limit` of those that match, in order, beyond `after`. The things must bear being changed meanwhile."""
    best: list[Thing] = []
    total = beyond = 0

    def visit(piece: list[Thing]) -> None:
        nonlocal best, total, beyond
        found = [one for one in piece if matches(one)]
        total += len(found)
        if after is not None:
            found = [one for one in found if order(one) > after]
        beyond += len(found)
        best = nsmallest(limit, best + found, key=order)

    await in_pieces(things, visit)
    return Page(best, total, beyond > len(best))
