"""Routes: which links each way of routing takes, and what makes a route move, or stay."""

import pytest
from msgspec import structs

from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.links.link_health import LinkState
from overlane.core.qos import QosClass, Routing
from overlane.core.routing.route import Route
from overlane.core.routing.routes import RoutePlanner
from overlane.core.routing.selection.link_risks import CAUTION, Risks
from overlane.core.routing.selection.route_plan import RoutePlan, plan
from overlane.core.routing.selection.route_reasons import REVIEW_GAP, SILENCE_MAX
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.control_messages import Advert, LinkClaim

START = 600 * SECOND


class Map:
    """A map in the hands of a test: links as "a-b", their latency in ms; the source is always a."""

    risk = 1_000

    def __init__(self, **latency_ms: int) -> None:
        self.now: Nanos = START
        self.table = LinkStateTable("a")
        self.planner = RoutePlanner("a", 1, self.table)
        self._claims: dict[tuple[str, str], LinkClaim] = {}
        self._sequence = 0
        for ends, ms in latency_ms.items():
            self._set(ends, latency_us=ms * 1000)
        self.tell()

    def _set(self, ends: str, latency_us: int = 0, loss: int = 0, state: LinkState = LinkState.UP) -> None:
        for one, other in ((ends[0], ends[1]), (ends[1], ends[0])):
            known = self._claims.get((one, other))
            us = latency_us or (known.latency_us if known else 0)
            self._claims[one, other] = LinkClaim(other, us, us // 50, loss, self.risk, int(state))

    def tell(self) -> None:
        self._sequence += 1
        for name in sorted({one for one, _ in self._claims}):
            links = [claim for (one, _), claim in sorted(self._claims.items()) if one == name]
            self.table.accept(Advert(name, 1, self._sequence, links, {}, 0), self.now)

    def slow(self, ends: str, ms: int) -> None:
        self._set(ends, latency_us=ms * 1000)
        self.tell()

    def lossy(self, *links: str, loss: float) -> None:
        for ends in links:
            self._set(ends, loss=int(loss * 1_000_000))
        self.tell()

    def rose(self, *links: str, by_ms: int) -> None:
        """They were slower for a while, lately."""
        for ends in links:
            for link in ((ends[0], ends[1]), (ends[1], ends[0])):
                self._claims[link] = structs.replace(self._claims[link], swing_us=by_ms * 1000)
        self.tell()

    def silent(self, ends: str) -> None:
        self._set(ends, state=LinkState.SUSPECT)
        self.tell()

    def well(self, ends: str) -> None:
        self._set(ends)
        self.tell()

    def fail(self, ends: str) -> None:
        del self._claims[ends[0], ends[1]], self._claims[ends[1], ends[0]]
        self.tell()

    def plan(self, qos: QosClass, destinations: str) -> RoutePlan:
        return plan(self.table, "a", qos, tuple(destinations))

    def links(self, qos: QosClass, destinations: str) -> str:
        return drawn(self.plan(qos, destinations))

    def route(self, qos: QosClass, destinations: str = "d") -> Route:
        route = self.planner.route(qos, tuple(destinations))
        self.planner.plan(route, "first use", self.now)
        self.planner.review(self.now)
        return route

    def after(self, ms: int) -> list[str]:
        """The causes for which routes have moved when this much time has passed."""
        end = self.now + ms * MS
        causes = []
        while True:
            causes += [route.cause for route in self.planner.review(self.now)]
            if self.planner.wake_at > end:
                self.now = end
                return causes + [route.cause for route in self.planner.review(self.now)]
            assert self.planner.wake_at > self.now
            self.now = self.planner.wake_at


def drawn(found: RoutePlan) -> str:
    """The links of a plan: "ab bd"."""
    return " ".join(sorted(one + other for one, other in found.links))


def qos(routing: str, deadline_ms: int = 0, paths: int = 2) -> QosClass:
    return QosClass(deadline_ms * MS or NEVER, routing=Routing(routing), paths=paths)


DIAMOND = {"ab": 10, "bd": 10, "ac": 12, "cd": 12}
FAN = {"ab": 10, "ac": 11, "ae": 12, "bd": 10, "cd": 11, "ed": 12}


# Each way of routing


def test_single_takes_the_quickest_path_to_each_destination() -> None:
    net = Map(**DIAMOND)
    assert net.plan(qos("single"), "d") == RoutePlan(frozenset({("a", "b"), ("b", "d")}), {"d": 20 * MS})
    assert net.links(qos("single"), "cd") == "ab ac bd"


def test_multipath_takes_two_disjoint_paths() -> None:
    net = Map(**DIAMOND, bc=1)
    assert net.links(qos("multipath", 60), "d") == "ab ac bd cd"
    assert net.links(qos("multipath", 60, paths=1), "d") == "ab bd"


def test_multipath_takes_only_paths_within_the_deadline() -> None:
    assert Map(**DIAMOND).links(qos("multipath", 22), "d") == "ab bd"


def test_flood_takes_every_link_that_can_be_in_time() -> None:
    net = Map(**DIAMOND, bc=1)
    assert net.links(qos("flood", 60), "d") == "ab ac bc bd cb cd"
    assert net.links(qos("flood", 21), "d") == "ab bd"


@pytest.mark.parametrize("routing", ["adaptive", "thrifty", "single"])
def test_while_all_is_well_one_path_is_enough(routing: str) -> None:
    assert Map(**FAN).links(qos(routing, 60), "d") == "ab bd"


def test_adaptive_fans_out_around_a_source_in_trouble() -> None:
    net = Map(**FAN)
    net.lossy("ab", "ac", "ae", loss=0.3)
    assert net.links(qos("adaptive", 30), "d") == "ab ac ae bd cd ed"


def test_adaptive_fans_out_around_a_destination_in_trouble() -> None:
    net = Map(**FAN)
    net.lossy("bd", "cd", "ed", loss=0.3)
    assert net.links(qos("adaptive", 30), "d") == "ab ac ae bd cd ed"


def test_adaptive_goes_past_trouble_in_the_middle() -> None:
    net = Map(ab=5, bc=5, cd=5, be=6, ec=6)
    net.lossy("bc", loss=0.3)
    links = net.links(qos("adaptive", 30), "d")
    assert links == "ab be cd ec"


def test_adaptive_doubles_the_middle_where_both_ways_are_in_trouble() -> None:
    net = Map(ab=5, bc=5, cd=5, be=3, ec=4)
    net.lossy("bc", "be", loss=0.2)
    assert net.links(qos("adaptive", 19), "d") == "ab bc be cd ec"


def test_thrifty_avoids_trouble_and_adds_redundancy_only_where_it_can_neither_avoid_nor_repair_it() -> None:
    net = Map(**FAN)
    net.lossy("bd", loss=0.3)
    assert net.links(qos("thrifty", 30), "d") == "ac cd"
    net.lossy("bd", "cd", "ed", loss=0.3)
    assert net.links(qos("thrifty", 30), "d") == "ab ac bd cd"
    assert net.links(qos("thrifty", 200), "d") == "ab bd"


def test_thrifty_does_not_prepare_for_trouble_that_has_not_begun() -> None:
    net = Map(**FAN)
    net.lossy("bd", "cd", "ed", loss=0.06)
    assert net.links(qos("thrifty", 30), "d") == "ab bd"
    assert net.links(qos("adaptive", 30), "d") == "ab ac ae bd cd ed"


def test_other_links_of_a_broker_in_trouble_are_doubtful() -> None:
    net = Map(**FAN)
    net.lossy("bd", "cd", loss=0.3)
    assert net.links(qos("adaptive", 30), "d") == "ab ac ae bd cd ed"


def test_loss_that_the_hops_can_repair_in_time_is_no_trouble() -> None:
    net = Map(**FAN)
    net.lossy("ab", loss=0.05)
    assert net.links(qos("adaptive", 5_000), "d") == "ab bd"


def test_the_more_slack_there_is_the_less_likely_a_message_fails() -> None:
    net = Map(ab=10)

    def failing(slack_ms: int) -> float:
        return Risks(net.table.map).failing(("a", "b"), slack_ms * MS, CAUTION[Routing.ADAPTIVE])

    net.lossy("ab", loss=0.3)
    chances = [failing(slack) for slack in (0, 30, 60, 120, 10_000)]
    assert chances[0] == 0.3
    assert chances == sorted(chances, reverse=True)
    net.lossy("ab", loss=0.005)
    assert failing(0) == 0.0


@pytest.mark.parametrize("trouble", ["none", "loss", "silence", "rise"])
def test_a_link_that_is_not_at_risk_fails_no_message_whatever_the_slack(trouble: str) -> None:
    net = Map(**FAN)
    match trouble:
        case "loss":
            net.lossy("ab", loss=0.1)
        case "silence":
            net.silent("ab")
        case "rise":
            net.rose("ab", by_ms=20)
    risks = Risks(net.table.map)
    at_risk = risks.at_risk(risks.links)
    assert (("a", "b") in at_risk) == (trouble != "none")
    for link in risks.links - at_risk:
        for slack_ms in (-5, 0, 1, 50, 10_000):
            assert risks.failing(link, slack_ms * MS, CAUTION[Routing.ADAPTIVE]) == 0.0


def test_a_suspect_link_is_used_only_to_reach_what_nothing_else_reaches() -> None:
    net = Map(**DIAMOND, de=5)
    net.silent("ab")
    net.silent("de")
    assert net.links(qos("single"), "d") == "ac cd"
    assert net.plan(qos("single"), "de").latency_ns.keys() == {"d", "e"}


@pytest.mark.parametrize("routing", [routing.value for routing in Routing])
def test_an_unmeetable_deadline_gets_the_quickest_way_there_is(routing: str) -> None:
    found = Map(**DIAMOND).plan(qos(routing, 5), "d")
    assert (found.latency_ns, {("a", "b"), ("b", "d")} <= found.links) == ({"d": 20 * MS}, True)


@pytest.mark.parametrize("routing", [routing.value for routing in Routing])
def test_what_cannot_be_reached_is_left_out(routing: str) -> None:
    net = Map(**DIAMOND, xy=5)
    assert net.plan(qos(routing, 60), "dx").latency_ns == {"d": 20 * MS}
    assert net.plan(qos(routing, 60), "xz") == RoutePlan(frozenset(), {})


@pytest.mark.parametrize("routing", ["adaptive", "thrifty"])
def test_what_only_suspect_links_reach_is_reached_over_them(routing: str) -> None:
    net = Map(ab=10, bd=10)
    net.silent("ab")
    assert drawn(net.route(qos(routing, 60)).plan) == "ab bd"


def test_a_link_that_is_silent_amid_loss_may_only_have_lost_a_few_and_is_used_beside_another() -> None:
    net = Map(**DIAMOND)
    net._set("ac", loss=300_000)
    net.silent("ab")
    assert net.links(qos("adaptive", 30), "d") == "ab ac bd cd"
    net._set("ac")
    net.tell()
    assert net.links(qos("adaptive", 30), "d") == "ac cd"


def test_where_latencies_rose_lately_a_route_whose_own_links_did_not_is_prepared_too() -> None:
    net = Map(**FAN)
    net.rose("cd", by_ms=5)
    assert net.links(qos("adaptive", 30), "d") == "ab bd"
    net.rose("cd", "ed", by_ms=5)
    assert net.links(qos("adaptive", 30), "d") == "ab ac bd cd"
    assert net.links(qos("adaptive", 60), "d") == "ab bd"
    assert net.links(qos("thrifty", 30), "d") == "ab bd"


def test_the_way_around_that_the_quickest_paths_do_not_show_is_found() -> None:
    rungs = {f"a{one}": 1 for one in "bcefg"} | {f"{one}h": 1 for one in "bcefg"}
    cross = {"bc": 1, "ce": 1, "ef": 1, "fg": 1}
    net = Map(**rungs, **cross, hd=5, ax=10, xd=10)
    net.lossy("hd", loss=0.3)
    assert {("a", "x"), ("x", "d")} <= net.plan(qos("adaptive", 40), "d").links


def test_a_way_that_is_in_time_by_a_hair_is_no_way_around() -> None:
    net = Map(**DIAMOND)
    net.lossy("bd", loss=0.06)
    assert net.links(qos("thrifty", 24), "d") == "ab bd"


def test_trouble_that_moves_about_does_not_move_a_route_that_serves_as_well_as_any() -> None:
    net = Map(**FAN)
    route = net.route(qos("adaptive", 30))
    net.lossy("bd", "cd", "ed", loss=0.2)
    net.after(5_000)
    version = route.version
    for turn in range(10):
        net.lossy("bd", "cd", "ed", loss=0.2 + 0.01 * (turn % 2))
        net.after(1_000)
    assert route.version == version


def test_loss_that_may_only_be_remembered_is_answered_by_a_second_path_and_not_by_all() -> None:
    net = Map(**FAN)
    net.lossy("bd", "cd", "ed", loss=0.02)
    assert net.links(qos("adaptive", 30), "d") == "ab ac bd cd"
    net.lossy("bd", "cd", "ed", loss=0.06)
    assert net.links(qos("adaptive", 30), "d") == "ab ac ae bd cd ed"


# When a route moves


def test_a_route_stays_while_nothing_changes() -> None:
    net = Map(**DIAMOND)
    route = net.route(qos("single", 60))
    net.tell()
    assert (net.after(60_000), route.version) == ([], 1)


def test_a_failed_link_moves_the_routes_over_it_and_no_other() -> None:
    net = Map(**DIAMOND)
    over, beside = net.route(qos("single", 60)), net.route(qos("single", 60), "c")
    net.fail("bd")
    assert net.after(0) == ["link b-d failed"]
    assert (drawn(over.plan), over.version, beside.version) == ("ac cd", 2, 1)


def test_a_slow_link_moves_the_route_whose_deadline_it_breaks_and_not_the_one_that_bears_it() -> None:
    net = Map(**DIAMOND)
    tight, loose = net.route(qos("single", 60)), net.route(qos("single", 400))
    net.slow("bd", 80)
    assert net.after(0) == ["link b-d slow: d 90 ms away"]
    assert (drawn(tight.plan), drawn(loose.plan), loose.version) == ("ac cd", "ab bd", 1)
    assert (net.after(60_000), loose.plan.latency_ns) == ([], {"d": 90 * MS})


def test_when_a_link_has_healed_its_routes_return() -> None:
    net = Map(**DIAMOND)
    route = net.route(qos("single", 60))
    net.slow("bd", 80)
    net.after(5_000)
    net.slow("bd", 10)
    assert net.after(0) == ["a quicker way"]
    assert drawn(route.plan) == "ab bd"


def test_a_little_quicker_is_no_reason_to_move() -> None:
    net = Map(ab=10, bd=10, ac=11, cd=11)
    net.route(qos("single"))
    net.slow("ac", 9)
    net.slow("cd", 9)
    assert net.after(60_000) == []
    net.slow("cd", 2)
    assert net.after(60_000) == ["a quicker way"]


def test_a_quicker_way_is_not_taken_again_and_again() -> None:
    net = Map(**DIAMOND)
    route = net.route(qos("single"))
    for turn in range(20):
        net.slow("bd", 10 if turn % 2 else 80)
        net.after(100)
    assert route.version <= 2 + 2 * SECOND // REVIEW_GAP


def test_silence_moves_a_route_only_when_its_deadline_can_bear_it_no_longer() -> None:
    net = Map(**DIAMOND)
    tight, loose = net.route(qos("single", 60)), net.route(qos("single"))
    net.silent("bd")
    assert (net.after(0), tight.version, loose.version) == ([], 1, 1)
    assert net.after(20) == ["no answer in time over link b-d"]
    assert (tight.version, loose.version) == (2, 1)
    assert net.after(SILENCE_MAX // MS) == ["no answer in time over link b-d"]
    assert (drawn(tight.plan), drawn(loose.plan)) == ("ac cd", "ac cd")


def test_silence_that_ends_in_time_moves_nothing() -> None:
    net = Map(**DIAMOND)
    route = net.route(qos("single", 200))
    net.silent("bd")
    net.after(50)
    net.well("bd")
    assert (net.after(60_000), route.version) == ([], 1)


def test_a_route_is_not_moved_for_silence_when_there_is_no_other_way() -> None:
    net = Map(ab=10, bd=10)
    route = net.route(qos("single", 60))
    net.silent("bd")
    assert (net.after(60_000), route.version) == ([], 1)


def test_adaptive_adds_redundancy_when_trouble_begins_and_takes_it_away_when_it_ends() -> None:
    net = Map(**FAN)
    route = net.route(qos("adaptive", 30))
    net.lossy("bd", "cd", "ed", loss=0.3)
    assert net.after(0) == ["loss on link b-d"]
    assert (drawn(route.plan), route.plan.redundant) == ("ab ac ae bd cd ed", True)
    net.lossy("bd", "cd", "ed", loss=0.0)
    assert net.after(1_000) == ["trouble changed"]
    assert (drawn(route.plan), route.plan.redundant) == ("ab ac bd cd", True)  # it may come back, and leaves no time
    assert net.after(62_000) == ["trouble changed"]
    assert (drawn(route.plan), route.plan.redundant) == ("ab bd", False)


def test_multipath_finds_a_new_second_path() -> None:
    net = Map(**FAN)
    route = net.route(qos("multipath", 60))
    assert drawn(route.plan) == "ab ac bd cd"
    net.fail("cd")
    assert net.after(0) == ["link c-d failed"]
    assert drawn(route.plan) == "ab ae bd ed"


def test_a_destination_that_comes_into_reach_is_joined_and_one_that_goes_is_let_go() -> None:
    net = Map(ab=10, cd=10)
    route = net.route(qos("single", 60), "bd")
    assert drawn(route.plan) == "ab"
    net._set("bd", latency_us=10_000)
    net.tell()
    assert net.after(2_000) == ["d is reachable"]
    assert drawn(route.plan) == "ab bd"
    net.fail("bd")
    net.after(2_000)
    assert drawn(route.plan) == "ab"


# How a route is described


def test_a_version_tells_what_is_kept_added_and_obsolete_and_how_far_it_is_from_everywhere() -> None:
    net = Map(**DIAMOND)
    route = net.route(qos("single", 60))
    net.fail("bd")
    net.after(0)
    told = route.description
    assert told is not None
    assert told.brokers == ["a", "c", "d", "b"]
    assert (told.kept, told.added, told.obsolete, told.destinations) == ([], [0, 1, 1, 2], [0, 3, 3, 2], [2])
    assert told.ahead_us == [24_000, 12_000, 0, 0]
    assert (told.route, told.version, told.deadline_us, told.latency_us, told.hops) == (1, 2, 60_000, 24_000, 2)


def test_routes_are_shared_by_class_and_destinations() -> None:
    net = Map(**DIAMOND)
    one, again, other = net.route(qos("single", 60)), net.route(qos("single", 60)), net.route(qos("single", 61))
    assert (one is again, one.id != other.id) == (True, True)
    net.planner.drop(one)
    assert net.route(qos("single", 60)).id not in (one.id, other.id)
