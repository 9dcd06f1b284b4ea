"""Signals: the next deadline of many neighbours is that of the earliest, whatever changed in between."""

from random import Random

from overlane.core.links.neighbour import Neighbour
from overlane.core.links.signals import WAKE_GROUP_MAX, Signals
from overlane.core.units import MS, SECOND


def neighbours(signals: Signals, count: int) -> list[Neighbour]:
    found = [Neighbour(f"n{number:03}", "edf", 1 << 20, 500 * MS, signals) for number in range(count)]
    for number, one in enumerate(found):
        one.connect("a", 1, number * MS)
        one.greet(1, number * MS)
    return found


def test_the_earliest_deadline_and_those_that_are_due_are_found_among_many_neighbours() -> None:
    for seed in range(20):
        luck, signals = Random(seed), Signals()
        everybody = neighbours(signals, 3 * WAKE_GROUP_MAX + 1)
        now = SECOND
        for _ in range(50):
            one = luck.choice(everybody)
            match luck.randrange(4):
                case 0:
                    one.disconnect(now)
                case 1:
                    one.connect("a", 1, now)
                    one.greet(1, now)
                case 2:
                    one.tick(now)
                case _:
                    one.ask(now + luck.randrange(100) * MS)
            now += luck.randrange(50) * MS
            assert signals.next_deadline() == min(each.next_deadline() for each in everybody), f"seed {seed}"
            assert signals.due(now) == [each.name for each in everybody if each.next_deadline() <= now], f"seed {seed}"


def test_only_the_group_of_a_neighbour_that_changed_is_looked_at() -> None:
    signals = Signals()
    everybody = neighbours(signals, 10 * WAKE_GROUP_MAX)
    signals.next_deadline()
    everybody[0].touch()
    assert [group.woken for group in signals.groups] == [True] + 9 * [False]
