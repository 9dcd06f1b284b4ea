"""Clients whose messages find no room wait in line, each gets its turn, and none waits for ever."""

from collections.abc import Hashable

import pytest

from overlane.core.units import SECOND
from overlane.mqtt.connection import Connection
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.limits import Limits
from overlane.pubsub.publishing.backpressure import GO_SHARE, STOP_MAX
from overlane.turn.backpressure import MANY, Backpressure


class Ways:
    """Two ways; each client that goes on takes a part of its own."""

    def __init__(self) -> None:
        self.shares: dict[Hashable, float] = {"north": 1.0, "south": 1.0}
        self.progress: dict[Hashable, int] = {"north": 0, "south": 0}

    def share_of(self, way: Hashable) -> float:
        return self.shares[way]

    def progress_of(self, way: Hashable) -> int:
        return self.progress[way]


class Client:
    def __init__(self, name: str, lines: Backpressure, ways: Ways, takes: float, gone: list[str]) -> None:
        self.connection = Connection(Peer("127.0.0.1"), Limits(), [], 0)
        self.name = name
        self._lines = lines
        self._ways = ways
        self._takes = takes
        self._gone = gone

    def stop(self, way: str, now: int = 0) -> None:
        self.connection.stops_for, self.connection.waits_on = way, True
        self._lines.wait(self, now)

    def go(self) -> None:
        """Takes some room, and stops again: it has more to say."""
        self._lines.leave(self)
        way = str(self.connection.stops_for)
        self._gone.append(self.name)
        self._ways.shares[way] += self._takes
        self.stop(way)


@pytest.fixture
def ways() -> Ways:
    return Ways()


@pytest.fixture
def lines(ways: Ways) -> Backpressure:
    return Backpressure(ways)


def test_only_so_many_go_on_as_there_is_room_for_and_all_get_their_turn(lines: Backpressure, ways: Ways) -> None:
    gone: list[str] = []
    clients = [Client(str(number), lines, ways, 0.2, gone) for number in range(10)]
    for client in clients:
        client.stop("north")
    for _ in range(10):
        before = len(gone)
        ways.shares["north"] = 0.0
        lines.let_go()
        assert len(gone) - before == 2  # the third finds more than GO_SHARE taken
    assert sorted(gone) == sorted([str(number) for number in range(10)] * 2)
    assert GO_SHARE < 2 * 0.2


def test_a_shut_way_does_not_hold_up_those_who_wait_for_another(lines: Backpressure, ways: Ways) -> None:
    gone: list[str] = []
    Client("north", lines, ways, 0.1, gone).stop("north")
    Client("south", lines, ways, 0.1, gone).stop("south")
    ways.shares["south"] = 0.0
    lines.let_go()
    assert gone == ["south"]


def test_one_waits_on_while_its_way_moves_but_not_for_ever(lines: Backpressure, ways: Ways) -> None:
    client = Client("one", lines, ways, 0.1, [])
    client.stop("north", now=0)
    now = 0
    waited = []
    while now < 2 * STOP_MAX:
        now += SECOND
        ways.progress["north"] += 1
        waited.append(lines.wait_on(client, now))
    assert waited.index(False) == STOP_MAX // SECOND - 1


def test_nobody_waits_for_a_way_on_which_nothing_leaves(lines: Backpressure, ways: Ways) -> None:
    client = Client("one", lines, ways, 0.1, [])
    client.stop("north", now=0)
    assert not lines.wait_on(client, SECOND)


def test_a_client_with_a_short_keep_alive_is_not_kept_waiting_for_longer_than_half_of_it(
    lines: Backpressure, ways: Ways
) -> None:
    client = Client("one", lines, ways, 0.1, [])
    client.connection.keep_alive_ns = 6 * SECOND  # one and a half of what it said
    client.stop("north", now=0)
    ways.progress["north"] += 1
    assert lines.wait_on(client, SECOND)
    ways.progress["north"] += 1
    assert not lines.wait_on(client, 2 * SECOND)


def test_one_that_publishes_with_a_deadline_does_not_wait_on(lines: Backpressure, ways: Ways) -> None:
    client = Client("one", lines, ways, 0.1, [])
    client.stop("north", now=0)
    client.connection.waits_on = False
    ways.progress["north"] += 1
    assert not lines.wait_on(client, SECOND)


def test_where_many_wait_little_is_read_of_each(lines: Backpressure, ways: Ways) -> None:
    clients = [Client(str(number), lines, ways, 0.1, []) for number in range(MANY + 1)]
    for client in clients[:-1]:
        client.stop("north")
    few = lines.reads_little
    clients[-1].stop("north")
    many = lines.reads_little
    lines.leave(clients[0])
    lines.leave(clients[0])
    assert (few, many, lines.reads_little) == (False, True, False)
