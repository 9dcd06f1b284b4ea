"""Numbers of the descriptions of routes on one connection."""

from random import Random

from overlane.core.links.described_routes import DESCRIBED_LATELY, KEYS_MAX, NUMBERS_MAX, DescribedRoutes


def key(number: int) -> bytes:
    return number.to_bytes(6)


def test_both_ends_know_a_route_by_the_same_number() -> None:
    here, there, luck = DescribedRoutes(), DescribedRoutes(), Random(1)
    for _ in range(3_000):
        told = key(luck.randrange(500))
        here.sent(told, 0)
        there.received(told)
        asked = key(luck.randrange(500))
        number = there.number_of(asked)
        assert here.key_of(number, asked) == asked
        assert number or asked != told


def test_a_route_that_was_not_described_on_this_connection_is_named_by_its_key() -> None:
    here, there = DescribedRoutes(), DescribedRoutes()
    assert there.number_of(key(1)) == 0
    assert (here.key_of(0, key(1)), here.key_of(1, b"")) == (key(1), b"")


def test_what_is_remembered_is_bounded_and_no_number_is_given_that_the_other_end_may_have_forgotten() -> None:
    here, there = DescribedRoutes(), DescribedRoutes()
    for number in range(1, 2 * KEYS_MAX):
        here.sent(key(number), number * DESCRIBED_LATELY)
        there.received(key(number))
        there.received(key(0))
        here.sent(key(0), number * DESCRIBED_LATELY)
    assert len(here._keys) == KEYS_MAX
    assert len(there._numbers) <= NUMBERS_MAX
    assert len(here._lately) <= 2
    known = [number for number in range(2 * KEYS_MAX) if there.number_of(key(number))]
    assert len(known) >= NUMBERS_MAX // 2 - 1
    # Half as many descriptions again may be under way.
    for number in range(NUMBERS_MAX):
        here.sent(key(100_000 + number), 0)
    assert all(here.key_of(there.number_of(key(number)), b"") == key(number) for number in known)


def test_a_description_counts_as_sent_for_half_a_second() -> None:
    routes = DescribedRoutes()
    assert not routes.was_sent_lately(key(1), 0)
    routes.sent(key(1), 0)
    assert routes.was_sent_lately(key(1), DESCRIBED_LATELY - 1)
    assert not routes.was_sent_lately(key(1), DESCRIBED_LATELY)
