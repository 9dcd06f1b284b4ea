"""Signalling: how a route is set up, changed, refreshed and taken down, broker by broker."""

from collections import deque

from msgspec import structs

from overlane.core.routing.signalling.route_budget import size_of
from overlane.core.routing.signalling.route_establishment import (
    EXPIRE_AFTER,
    GRACE,
    VERSIONS_KEPT,
    RouteEntry,
    RouteTable,
)
from overlane.core.routing.signalling.route_messages import Established, Outbox
from overlane.core.routing.signalling.route_parts import part_for
from overlane.core.units import MS, SECOND, US, Nanos
from overlane.core.wire.control_messages import ControlMessage, Establish, Teardown
from overlane.core.wire.frame_codec import broker_id, route_key

NOW = 50 * SECOND
Links = set[tuple[str, str]]


def describe(
    links: Links, destinations: str, version: int = 1, before: Links | None = None, incarnation: int = 1
) -> Establish:
    """A version of the route 1 of broker a; brokers have names of one letter."""
    old = before or set()
    names = sorted({"a", *destinations, *(name for link in links | old for name in link)})

    def flat(some: Links) -> list[int]:
        return [names.index(name) for link in sorted(some) for name in link]

    return Establish(
        "a",
        incarnation,
        1,
        version,
        names,
        flat(links & old),
        flat(links - old),
        flat(old - links),
        [names.index(name) for name in destinations],
        list(range(len(names))),
        0,
        0,
        1,
    )


class Signals:
    """Route tables joined by outbox that arrive in order."""

    def __init__(self, brokers: str) -> None:
        self.tables = {name: RouteTable(name) for name in brokers}
        self.log: list[str] = []
        self.established: list[int] = []
        self._letters: deque[tuple[str, str, ControlMessage | Established]] = deque()

    def establish(self, message: Establish, now: Nanos = NOW) -> None:
        outbox, whole = self.tables["a"].establish(None, message, now)
        if whole:
            self.established.append(message.version)
        self._post("a", outbox)
        self._deliver(now)

    def tear_down(self) -> None:
        message = Teardown("a", 1, 1)
        self._post("a", self.tables["a"].tear_down(None, message))
        self._deliver(NOW)

    def entry(self, broker: str, version: int = 1) -> RouteEntry | None:
        return self.tables[broker].entry(broker_id("a"), 1, version)

    def hops(self, version: int = 1) -> dict[str, tuple[str, ...]]:
        return {name: entry.next_hops for name in self.tables if (entry := self.entry(name, version)) is not None}

    def delivering(self, version: int = 1) -> str:
        return "".join(name for name in self.tables if (entry := self.entry(name, version)) and entry.deliver)

    def _post(self, sender: str, outbox: Outbox) -> None:
        self._letters += [(sender, receiver, message) for receiver, message in outbox]

    def _deliver(self, now: Nanos) -> None:
        for _ in range(1_000):
            if not self._letters:
                return
            sender, receiver, message = self._letters.popleft()
            table = self.tables[receiver]
            match message:
                case Establish():
                    self.log.append(f"{sender}>{receiver}")
                    self._post(receiver, table.establish(sender, message, now)[0])
                case Established():
                    self.log.append(f"{sender}ok{receiver}")
                    outbox, ours = table.acknowledged(sender, message)
                    if ours:
                        self.established.append(message.version)
                    self._post(receiver, outbox)
                case Teardown():
                    self.log.append(f"{sender}x{receiver}")
                    self._post(receiver, table.tear_down(sender, message))
                case _:
                    raise AssertionError(f"not expected: {message}")
        raise AssertionError("the outbox do not end")


LINE: Links = {("a", "b"), ("b", "c")}
DIAMOND: Links = {("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")}


def test_acknowledgements_come_from_the_leaves_back() -> None:
    net = Signals("abc")
    net.establish(describe(LINE, "c"))
    assert net.log == ["a>b", "b>c", "cokb", "boka"]
    assert net.established == [1]
    assert (net.hops(), net.delivering()) == ({"a": ("b",), "b": ("c",), "c": ()}, "c")


def test_several_destinations_share_one_route_and_one_may_lie_on_the_way_to_another() -> None:
    net = Signals("abcd")
    net.establish(describe({*LINE, ("b", "d")}, "bcd"))
    assert (net.hops()["b"], net.delivering(), net.established) == (("c", "d"), "bcd", [1])


def test_each_broker_learns_the_latency_still_to_go() -> None:
    net = Signals("abc")
    net.establish(describe(LINE, "c"))
    assert [entry.ahead_ns for name in "abc" if (entry := net.entry(name))] == [0, 1 * US, 2 * US]


def test_each_broker_learns_how_many_links_the_ways_through_it_have() -> None:
    net = Signals("abcde")
    net.establish(describe({*LINE, ("c", "d"), ("a", "e")}, "cde"))
    assert {name: entry.hops for name in "abcde" if (entry := net.entry(name))} == {
        "a": 3,
        "b": 3,
        "c": 3,
        "d": 3,
        "e": 1,
    }


def test_ways_that_form_a_cycle_have_their_least_number_of_links() -> None:
    net = Signals("abcd")
    net.establish(describe({*DIAMOND, ("b", "c"), ("c", "b"), ("d", "b")}, "d"))
    assert {name: entry.hops for name in "abcd" if (entry := net.entry(name))} == {"a": 2, "b": 2, "c": 2, "d": 2}


def test_a_source_that_waits_for_a_leaf_is_not_told_before_the_leaf_has_acknowledged() -> None:
    table = RouteTable("b")
    message = describe({("a", "b"), ("b", "c"), ("b", "d")}, "cd")
    outbox, whole = table.establish("a", message, NOW)
    assert (outbox, whole) == ([(hop, part_for(message, hop)) for hop in "cd"], False)
    acknowledgement = Established("a", 1, 1, 1)
    assert table.acknowledged("c", acknowledgement) == ([], False)
    assert table.acknowledged("d", acknowledgement) == ([("a", acknowledgement)], False)
    assert table.acknowledged("d", acknowledgement) == ([], False)


def test_two_ways_into_a_broker_are_both_acknowledged_and_described_to_it_once_each() -> None:
    net = Signals("abcd")
    net.establish(describe(DIAMOND, "d"))
    assert net.established == [1]
    assert sorted(one for one in net.log if ">" in one) == ["a>b", "a>c", "b>d", "c>d"]
    assert (entry := net.entry("d")) is not None
    assert entry.upstream == {"b", "c"}


def test_where_links_form_a_cycle_the_waiting_ends() -> None:
    both_ways = {(one, other) for one in "abcd" for other in "abcd" if one != other}
    net = Signals("abcd")
    net.establish(describe(both_ways, "d"))
    assert net.established == [1]
    assert len([one for one in net.log if ">" in one]) <= len(both_ways)


def test_a_new_version_is_told_over_kept_and_added_links_and_the_obsolete_ones() -> None:
    net = Signals("abcd")
    net.establish(describe(LINE, "c"))
    net.log.clear()
    after: Links = {("a", "b"), ("b", "d"), ("d", "c")}
    net.establish(describe(after, "c", 2, LINE))
    assert net.hops(2) == {"a": ("b",), "b": ("d",), "c": (), "d": ("c",)}
    assert net.established == [1, 2]
    assert {"a>b", "b>d", "d>c"} <= set(net.log)


def test_a_kept_link_that_acknowledged_before_is_not_waited_for() -> None:
    table = RouteTable("a")
    first = describe({("a", "b")}, "b")
    table.establish(None, first, NOW)
    table.acknowledged("b", Established("a", 1, 1, 1))
    second = describe({("a", "b"), ("a", "c")}, "bc", 2, {("a", "b")})
    assert table.establish(None, second, NOW) == ([(hop, part_for(second, hop)) for hop in "bc"], False)
    assert table.acknowledged("c", Established("a", 1, 1, 2)) == ([], True)


def test_a_broker_off_the_new_version_learns_that_it_is() -> None:
    net = Signals("abc")
    net.establish(describe(LINE, "c"))
    net.establish(describe({("a", "c")}, "c", 2, LINE))
    assert net.hops(2) == {"a": ("c",), "b": (), "c": ()}


def test_until_a_next_hop_has_acknowledged_parcels_carry_the_description_to_it() -> None:
    table = RouteTable("a")
    table.establish(None, describe(LINE, "c"), NOW)
    assert (entry := table.entry(broker_id("a"), 1, 1)) is not None
    assert entry.unconfirmed == {"b"}
    table.acknowledged("b", Established("a", 1, 1, 1))
    assert entry.unconfirmed == set()


def test_an_old_version_stays_for_a_grace_time_so_that_parcels_on_it_arrive() -> None:
    net = Signals("abc")
    net.establish(describe(LINE, "c"))
    net.establish(describe({("a", "c")}, "c", 2, LINE), NOW + SECOND)
    for table in net.tables.values():
        table.sweep(NOW + SECOND + GRACE)
    assert net.hops(1) == {"a": ("b",), "b": ("c",), "c": ()}
    for table in net.tables.values():
        table.sweep(NOW + SECOND + GRACE + 1)
    assert (net.hops(1), net.hops(2)["a"]) == ({}, ("c",))


def test_a_version_that_comes_late_serves_its_parcels_but_is_not_the_newest() -> None:
    table = RouteTable("b")
    table.establish("a", describe(LINE, "c", 2), NOW)
    table.establish("a", describe({("a", "b"), ("b", "d")}, "d", 1), NOW)
    assert (late := table.entry(broker_id("a"), 1, 1)) is not None
    assert late.next_hops == ("d",)
    assert [entry.message.version for _, entry in table.newest()] == [2]
    table.sweep(NOW + GRACE + 1)
    assert [table.entry(broker_id("a"), 1, version) is None for version in (1, 2)] == [True, False]


def test_a_version_from_long_ago_and_from_a_former_life_are_ignored() -> None:
    table = RouteTable("b")
    table.establish("a", describe(LINE, "c", 20, incarnation=2), NOW)
    assert table.establish("a", describe(LINE, "c", 19 - VERSIONS_KEPT, incarnation=2), NOW) == ([], False)
    assert table.establish("a", describe(LINE, "c", 21, incarnation=1), NOW) == ([], False)
    assert table.acknowledged("c", Established("a", 1, 1, 20)) == ([], False)
    assert table.tear_down("a", Teardown("a", 1, 1)) == []
    assert len(table) == 1


def test_a_refresh_is_passed_on_once_and_keeps_the_route_alive() -> None:
    net = Signals("abcd")
    both_ways = {(one, other) for one in "abcd" for other in "abcd" if one != other}
    message = describe(both_ways, "d")
    net.establish(message)
    net.log.clear()
    net.establish(structs.replace(message, refresh=1), NOW + EXPIRE_AFTER)
    assert len([one for one in net.log if ">" in one]) <= len(both_ways)
    assert {one[2] for one in net.log if ">" in one} >= set("bcd")
    net.log.clear()
    net.establish(structs.replace(message, refresh=1), NOW + EXPIRE_AFTER)
    assert net.log == []
    for table in net.tables.values():
        table.sweep(NOW + 2 * EXPIRE_AFTER)
        assert len(table) == 1


def test_a_route_nobody_refreshes_expires() -> None:
    table = RouteTable("b")
    table.establish("a", describe(LINE, "c"), NOW)
    table.sweep(NOW + EXPIRE_AFTER)
    assert len(table) == 1
    table.sweep(NOW + EXPIRE_AFTER + 1)
    assert len(table) == 0


def test_a_teardown_follows_every_link_of_every_version_and_ends_in_a_cycle() -> None:
    net = Signals("abcd")
    net.establish(describe(LINE, "c"))
    net.establish(describe({("a", "d"), ("d", "c"), ("c", "a")}, "c", 2, LINE))
    net.tear_down()
    assert [len(table) for table in net.tables.values()] == [0, 0, 0, 0]
    assert len([one for one in net.log if "x" in one]) <= 5


def test_what_a_former_life_of_a_broker_set_up_is_gone_when_it_restarts() -> None:
    table = RouteTable("b")
    table.establish("a", describe(LINE, "c", incarnation=3), NOW)
    table.origin_restarted("a", 3)
    table.origin_restarted("z", 9)
    assert len(table) == 1
    table.origin_restarted("a", 4)
    assert len(table) == 0
    table.establish("a", describe(LINE, "c", incarnation=4), NOW)
    assert (entry := table.entry(broker_id("a"), 1, 1)) is not None
    assert entry.message.incarnation == 4


def test_a_link_is_spared_where_other_copies_reach_all_destinations_without_it() -> None:
    table = RouteTable("a")
    table.establish(None, describe({("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), ("d", "e")}, "e"), NOW)
    assert (entry := table.entry(broker_id("a"), 1, 1)) is not None
    assert (entry.spares("b"), entry.spares("c")) == (True, True)
    table.establish(None, describe({("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")}, "cd", 2), NOW)
    assert (entry := table.entry(broker_id("a"), 1, 2)) is not None
    assert (entry.spares("b"), entry.spares("c")) == (True, False)
    at_d = RouteTable("d")
    at_d.establish("b", describe({("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), ("d", "e")}, "e"), NOW)
    assert (entry := at_d.entry(broker_id("a"), 1, 1)) is not None
    assert not entry.spares("e")


def test_what_returns_to_the_source_takes_the_path_over_its_last_hop_from_broker_to_broker() -> None:
    net = Signals("abcde")
    net.establish(describe({*DIAMOND, ("d", "e")}, "de"))
    place = {name: at for at, name in enumerate("abcde")}

    def way_back(destination: str, last_hop: str) -> str:
        """All brokers that it passes, as each of them finds the next one."""
        path = destination
        while (entry := net.entry(path[-1])) is not None:
            following = entry.way_back(place[destination], place[last_hop])
            if not following:
                return path
            path += following
        raise AssertionError("a broker without the route")

    assert (way_back("d", "b"), way_back("d", "c"), way_back("e", "d")) == ("dba", "dca", "edba")


def test_nothing_returns_by_brokers_or_links_that_a_route_does_not_have() -> None:
    net = Signals("abcd")
    net.establish(describe(DIAMOND, "d"))
    assert (entry := net.entry("b")) is not None
    assert [entry.way_back(*ends) for ends in ((3, 2), (2, 1), (3, 9), (9, 1), (0xFFFF, 0xFFFF))] == [""] * 5
    assert (entry := net.entry("d")) is not None
    assert [entry.ends_over(hop) for hop in "bcaz"] == [(3, 1), (3, 2), None, None]


def test_a_broker_the_route_does_not_name_takes_no_part_in_it() -> None:
    table = RouteTable("z")
    outbox, _ = table.establish("a", describe(LINE, "c"), NOW + MS)
    assert [type(message) for _, message in outbox] == [Established]
    assert (entry := table.entry(broker_id("a"), 1, 1)) is not None
    assert (entry.next_hops, entry.deliver) == ((), False)


def keys(table: RouteTable) -> dict[bytes, int]:
    """The versions that parcels' keys lead to."""
    return {key: entry.message.version for key, entry in table.keyed.items()}


def key(version: int, incarnation: int = 1) -> bytes:
    return route_key(broker_id("a"), incarnation, 1, version)


def test_keys_lead_to_the_versions_there_are_and_to_no_others() -> None:
    net = Signals("abc")
    net.establish(describe({("a", "b"), ("b", "c")}, "c"))
    net.establish(describe({("a", "c")}, "c", version=2, before={("a", "b"), ("b", "c")}))
    table = net.tables["c"]
    assert keys(table) == {key(1): 1, key(2): 2}
    table.sweep(NOW + GRACE + 1)
    assert keys(table) == {key(2): 2}
    net.establish(describe({("a", "c")}, "c", incarnation=2))
    assert keys(table) == {key(1, incarnation=2): 1}
    table.origin_restarted("a", 3)
    assert keys(table) == {}
    net.establish(describe({("a", "c")}, "c", incarnation=3))
    table.sweep(NOW + EXPIRE_AFTER + 1)
    assert keys(table) == {}


def test_a_torn_down_route_leaves_no_key() -> None:
    net = Signals("ab")
    net.establish(describe({("a", "b")}, "b"))
    net.tear_down()
    assert [keys(table) for table in net.tables.values()] == [{}, {}]


def test_a_route_whose_key_is_taken_is_not_set_up_and_its_next_version_is() -> None:
    table = RouteTable("b")
    table.establish("a", describe({("a", "b")}, "b"), NOW)
    other = table.keyed[key(1)]
    table = RouteTable("b")
    table.keyed[key(1)] = other
    assert table.establish("a", describe({("a", "b")}, "b"), NOW) == ([], False)
    assert table.keyed == {key(1): other}
    outbox, whole = table.establish("a", describe({("a", "b")}, "b", version=2), NOW)
    assert ([hop for hop, _ in outbox], whole) == (["a"], True)


# Room


def from_origin(origin: str, route: int, version: int = 1, size: int = 0) -> Establish:
    """A route to b, the longer the more brokers it names."""
    names = [origin, "b", *(f"n{number}" for number in range(size))]
    return Establish(origin, 1, route, version, names, [], [0, 1], [], [1], [0] * len(names), 0, 0, 1)


def held(table: RouteTable, origin: str) -> int:
    return sum(key[0] == broker_id(origin) for key, _ in table.newest())


def test_who_describes_routes_without_end_takes_the_room_of_nobody_else() -> None:
    one = size_of(from_origin("x", 1))
    table = RouteTable("b", bytes_max=100 * one)
    for number in range(10):
        table.establish("a", from_origin("a", number), NOW)
    for number in range(1_000):
        table.establish("x", from_origin("x", number), NOW + number)
    assert held(table, "a") == 10
    assert held(table, "x") == 90
    for number in range(10, 40):
        table.establish("a", from_origin("a", number), NOW + SECOND)
    assert held(table, "a") == 40
    assert held(table, "x") <= 60
    for number in range(100):
        table.establish(None, from_origin("b", number), NOW + SECOND)
    assert held(table, "b") == 100


def test_versions_without_end_and_long_descriptions_count_too() -> None:
    table = RouteTable("b", bytes_max=1 << 20)
    table.establish("a", from_origin("a", 1), NOW)
    for version in range(2_000):
        table.establish("x", from_origin("x", 1, version), NOW)
    for number in range(2, 200):
        table.establish("x", from_origin("x", number, size=500), NOW)
    assert sum(entry.size_bytes for entry in table.keyed.values()) <= 1 << 20
    assert held(table, "a") == 1
    assert table.establish("a", from_origin("a", 2), NOW)[1] is True
    assert held(table, "a") == 2


def test_room_is_given_back() -> None:
    table = RouteTable("b", bytes_max=10 * size_of(from_origin("a", 1)))
    for number in range(1_000):
        assert table.establish("a", from_origin("a", number), NOW)[1] is True
        table.tear_down("a", Teardown("a", 1, number))
    for number in range(10):
        table.establish("a", from_origin("a", number), NOW)
    assert held(table, "a") == 10
    table.sweep(NOW + EXPIRE_AFTER + 1)
    assert len(table) == 0
    assert table.establish("a", from_origin("a", 1), NOW)[1] is True
