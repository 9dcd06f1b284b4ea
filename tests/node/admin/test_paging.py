"""Pages of many things, found a piece at a time."""

import asyncio

from overlane.node.admin.paging import PIECE, page


def numbers(limit: int, after: int | None = None, count: int = 10) -> tuple[list[int], int, bool]:
    things = [(7 * number) % count for number in range(count)]
    found = asyncio.run(page(things, lambda one: one, limit, after=after, matches=lambda one: one % 2 == 0))
    return found.items, found.total, found.has_more


def test_a_page_has_the_first_that_match_in_order_and_the_number_of_all() -> None:
    assert numbers(2) == ([0, 2], 5, True)
    assert numbers(2, after=2) == ([4, 6], 5, True)
    assert numbers(2, after=6) == ([8], 5, False)
    assert numbers(5) == ([0, 2, 4, 6, 8], 5, False)


def test_a_page_beyond_the_last_is_empty() -> None:
    assert numbers(2, after=8) == ([], 5, False)


def test_the_loop_works_between_the_pieces() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def both() -> None:
        other = asyncio.create_task(count_turns())
        await page(list(range(20 * PIECE)), lambda one: one, 5, matches=lambda _: True)
        other.cancel()

    asyncio.run(both())
    assert turns >= 20
