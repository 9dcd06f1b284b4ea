"""Route refresh: routes that stay are kept by their numbers, and described to those who lack them."""

from collections import deque

import pytest

from overlane.core.routing.signalling.route_establishment import EXPIRE_AFTER, RouteTable
from overlane.core.routing.signalling.route_messages import Established, Outbox
from overlane.core.routing.signalling.route_refresh import refreshes, take_refresh, take_request
from overlane.core.units import SECOND, Nanos
from overlane.core.wire.control_messages import Establish, RouteRefresh, RouteRequest, Teardown
from overlane.core.wire.frame_codec import broker_id
from overlane.core.wire.message_fields import REFRESHED_MAX

NOW = 50 * SECOND
LATER = NOW + EXPIRE_AFTER // 2
A = broker_id("a")


def route(number: int, path: str, version: int = 1, incarnation: int = 1) -> Establish:
    """A route of a along a path of brokers with names of one letter."""
    links = [place for start in range(len(path) - 1) for place in (start, start + 1)]
    ahead_us = [0] * len(path)
    return Establish("a", incarnation, number, version, list(path), [], links, [], [len(path) - 1], ahead_us, 0, 0, 1)


class Chain:
    """Route tables whose messages arrive in order."""

    def __init__(self, brokers: str) -> None:
        self.tables = {name: RouteTable(name) for name in brokers}
        self.log: list[tuple[str, str, str]] = []

    def establish(self, *routes: Establish) -> None:
        for message in routes:
            self._deliver("a", self.tables["a"].establish(None, message, NOW)[0], NOW)
        self.log.clear()

    def refresh(self, routes: dict[int, int], now: Nanos = LATER, number: int = 1) -> None:
        for message in refreshes("a", 1, number, routes):
            self._deliver("a", take_refresh(self.tables["a"], None, message, now), now)

    def _deliver(self, sender: str, outbox: Outbox, now: Nanos) -> None:
        waiting = deque((sender, hop, message) for hop, message in outbox)
        while waiting:
            sender, receiver, message = waiting.popleft()
            table, answers = self.tables[receiver], Outbox()
            match message:
                case Establish():
                    self.log.append((sender, receiver, f"establish {message.route}"))
                    answers = table.establish(sender, message, now)[0]
                case RouteRefresh(routes=routes):
                    self.log.append((sender, receiver, f"refresh {sorted(routes)}"))
                    answers = take_refresh(table, sender, message, now)
                case RouteRequest(routes=routes):
                    self.log.append((sender, receiver, f"request {sorted(routes)}"))
                    answers = take_request(table, sender, message)
                case Established():
                    answers = table.acknowledged(sender, message)[0]
                case Teardown():
                    answers = table.tear_down(sender, message)
            waiting += [(receiver, hop, answer) for hop, answer in answers]

    def sweep(self, now: Nanos) -> dict[str, int]:
        for table in self.tables.values():
            table.sweep(now)
        return {name: len(table) for name, table in self.tables.items()}


def test_one_message_to_each_next_hop_keeps_all_routes_that_lead_there() -> None:
    net = Chain("abcd")
    net.establish(route(1, "abc"), route(2, "abc"), route(3, "abd"))
    net.refresh({1: 1, 2: 1, 3: 1})
    assert net.log == [("a", "b", "refresh [1, 2, 3]"), ("b", "c", "refresh [1, 2]"), ("b", "d", "refresh [3]")]
    assert net.sweep(NOW + EXPIRE_AFTER + 1) == {"a": 3, "b": 3, "c": 2, "d": 1}
    assert net.sweep(LATER + EXPIRE_AFTER + 1) == {"a": 0, "b": 0, "c": 0, "d": 0}


def test_a_route_that_is_not_named_expires() -> None:
    net = Chain("abc")
    net.establish(route(1, "abc"), route(2, "abc"))
    net.refresh({2: 1})
    net.sweep(NOW + EXPIRE_AFTER + 1)
    assert [net.tables["b"].entry(A, number, 1) is not None for number in (1, 2)] == [False, True]


def test_a_refresh_is_passed_on_once_where_ways_join() -> None:
    net = Chain("abcde")
    both = Establish("a", 1, 1, 1, list("abcde"), [], [0, 1, 0, 2, 1, 3, 2, 3, 3, 4], [], [4], [0, 0, 0, 0, 0], 0, 0, 1)
    net.establish(both)
    net.refresh({1: 1})
    assert [(one, other) for one, other, _ in net.log] == [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")]
    net.refresh({1: 1}, number=1)
    assert len(net.log) == 5


def test_a_broker_that_has_lost_a_route_is_described_it_again() -> None:
    net = Chain("abc")
    net.establish(route(1, "abc"), route(2, "abc"))
    net.tables["b"] = RouteTable("b")
    net.refresh({1: 1, 2: 1})
    assert net.log[:4] == [
        ("a", "b", "refresh [1, 2]"),
        ("b", "a", "request [1, 2]"),
        ("a", "b", "establish 1"),
        ("a", "b", "establish 2"),
    ]
    assert net.sweep(LATER) == {"a": 2, "b": 2, "c": 2}
    entry = net.tables["a"].entry(A, 1, 1)
    assert entry is not None
    assert entry.unconfirmed == set()


def test_a_broker_that_knows_an_older_version_requests_the_one_that_is_named() -> None:
    table = RouteTable("b")
    table.establish("a", route(1, "abc"), NOW)
    (request,) = take_refresh(table, "a", RouteRefresh("a", 1, 1, {1: 2}), LATER)
    assert request == ("a", RouteRequest("a", 1, {1: 2}))


@pytest.mark.parametrize(("incarnation", "version"), [(1, 2), (2, 1)])
def test_what_is_older_than_what_is_known_is_not_requested(incarnation: int, version: int) -> None:
    table = RouteTable("b")
    table.establish("a", route(1, "abc", version, incarnation), NOW)
    assert take_refresh(table, "a", RouteRefresh("a", 1, 1, {1: 1}), LATER) == []


def test_only_a_next_hop_of_the_route_is_described_it() -> None:
    table = RouteTable("b")
    table.establish("a", route(1, "abc"), NOW)
    request = RouteRequest("a", 1, {1: 1})
    assert [hop for hop, _ in take_request(table, "c", request)] == ["c"]
    assert take_request(table, "d", request) == []
    assert take_request(table, "c", RouteRequest("a", 2, {1: 1})) == []
    assert take_request(table, "c", RouteRequest("a", 1, {1: 2, 7: 1})) == []


def test_more_routes_than_fit_are_refreshed_in_several_messages() -> None:
    routes = dict.fromkeys(range(2 * REFRESHED_MAX + 1), 1)
    made = refreshes("a", 1, 5, routes)
    assert [len(message.routes) for message in made] == [REFRESHED_MAX, REFRESHED_MAX, 1]
    assert {number for message in made for number in message.routes} == routes.keys()
