"""The leader's decisions: every bundle has a broker that lives, and few of them move."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from overlane.coordination.assignment.elasticity import Bounds
from overlane.coordination.assignment.placement import least_loaded, lowest_latency
from overlane.coordination.leader import DISTRUST, AssignmentPolicy, Decision, Leader, Seen, suspected
from overlane.coordination.records import Assigned, BrokerRecord, ReportRecord, WantedRecord
from overlane.coordination.uses import Uses
from overlane.core.bundles import ALL
from overlane.core.units import SECOND, Nanos

POLICY = AssignmentPolicy(least_loaded, bounds=Bounds(1, 8))


@dataclass
class World:
    """What a leader sees, changed by its own decisions."""

    leader: Leader = field(default_factory=lambda: Leader(POLICY))
    members: dict[str, BrokerRecord] = field(default_factory=dict)
    lives: dict[str, int] = field(default_factory=dict)
    reports: dict[str, ReportRecord] = field(default_factory=dict)
    used: dict[str, frozenset[int]] = field(default_factory=dict)
    suspects: dict[str, frozenset[str]] = field(default_factory=dict)
    assigned: dict[int, Assigned] = field(default_factory=dict)
    wanted: WantedRecord | None = None
    now: Nanos = 0

    def add(self, name: str, role: str, used: frozenset[int] = frozenset()) -> None:
        self.lives[name] = self.lives.get(name, 0) + len(self.lives) + 1
        self.members[name] = BrokerRecord("d", role, self.lives[name])  # type: ignore[arg-type]
        self.used[name] = used

    @property
    def seen(self) -> Seen:
        uses = Uses.of(self.used)
        return Seen(self.members, self.lives, self.reports, uses, self.suspects, self.assigned, self.wanted)

    def decide(self, wait: Nanos = SECOND) -> Decision:
        self.now += wait
        decision = self.leader.decide(self.seen, self.now, self.now // SECOND)
        self.assigned |= decision.assigned
        self.wanted = decision.wanted or self.wanted
        return decision

    def counts(self) -> Counter[str]:
        return Counter(one.broker for one in self.assigned.values())


def world(routing: int = 3, edges: int = 4) -> World:
    made = World()
    for number in range(routing):
        made.add(f"r{number}", "routing")
    for number in range(edges):
        made.add(f"e{number}", "edge", frozenset(range(10 * number, 10 * number + 20)))
    made.decide()
    return made


def moves(decision: Decision, before: Mapping[int, Assigned]) -> dict[int, Assigned]:
    """What changes of the brokers, besides their standbys."""
    return {bundle: one for bundle, one in decision.assigned.items() if one.broker != before[bundle].broker}


def test_every_bundle_is_assigned_evenly_also_those_that_nobody_uses() -> None:
    found = world()
    assert found.assigned.keys() == ALL
    assert max(found.counts().values()) - min(found.counts().values()) <= 2
    assert found.assigned[0].why == "placed"
    assert found.assigned[255].why == "assigned before its first use"
    assert found.assigned[0].since_s == 1


def test_what_is_decided_stays_as_long_as_nothing_changes() -> None:
    found = world()
    assert [bool(found.decide()) for _ in range(50)] == 50 * [False]


def test_bundles_of_a_broker_that_is_gone_move_at_once_and_no_others() -> None:
    found = world()
    before = dict(found.assigned)
    del found.members["r1"]
    moved = moves(found.decide(0), before)
    assert moved.keys() == {bundle for bundle, one in before.items() if one.broker == "r1"}
    assert {one.why for one in moved.values()} == {"r1 is gone"}
    assert found.counts().keys() == {"r0", "r2"}


def test_every_bundle_has_a_standby_other_than_its_broker_and_they_are_spread() -> None:
    found = world()
    assert all(one.standby not in ("", one.broker) for one in found.assigned.values())
    duties = Counter(one.standby for one in found.assigned.values())
    assert max(duties.values()) - min(duties.values()) <= 2
    of_r1 = Counter(one.standby for one in found.assigned.values() if one.broker == "r1")
    assert min(of_r1["r0"], of_r1["r2"]) > 20


def test_the_standby_carries_the_bundles_of_a_broker_that_is_gone_and_another_stands_by() -> None:
    found = world(routing=4)
    before = dict(found.assigned)
    del found.members["r1"]
    found.decide(0)
    for bundle, one in before.items():
        assert found.assigned[bundle].broker == (one.standby if one.broker == "r1" else one.broker)
    assert all(one.standby not in ("", "r1", one.broker) for one in found.assigned.values())


def test_a_standby_that_is_gone_is_replaced_and_no_bundle_moves_for_that() -> None:
    found = world(routing=4)
    for bundle, one in found.assigned.items():
        found.assigned[bundle] = Assigned("r0", one.since_s, one.why, "r1")
    before = dict(found.assigned)
    del found.members["r1"]
    moved = moves(found.decide(0), before)
    assert not {bundle for bundle in moved if bundle < 50}, "bundles in use stay"
    assert {found.assigned[bundle].standby for bundle in range(50)} == {"r2", "r3"}


def test_a_single_routing_broker_has_no_standby_until_another_comes() -> None:
    found = world(routing=1)
    assert {one.standby for one in found.assigned.values()} == {""}
    found.add("r1", "routing")
    found.decide()
    assert all(one.standby not in ("", one.broker) for one in found.assigned.values())


def test_a_broker_that_was_not_reached_lately_stands_by_where_there_is_no_other() -> None:
    found = world(routing=2)
    found.suspects = dict.fromkeys(found.used, frozenset({"r1"}))
    found.decide(0)
    assert {(one.broker, one.standby) for one in found.assigned.values()} == {("r0", "r1")}
    assert not found.decide(SECOND).assigned
    found.add("r2", "routing")
    found.decide(SECOND)
    assert "r1" not in {name for one in found.assigned.values() for name in (one.broker, one.standby)}


def test_a_broker_whose_bundle_moves_while_it_lives_stands_by_for_it() -> None:
    found = world(routing=2)
    used = frozenset().union(*found.used.values())
    found.add("r2", "routing")
    found.decide()
    before = dict(found.assigned)
    found.reports = {name: ReportRecord(load=load) for name, load in (("r0", 0.9), ("r1", 0.9), ("r2", 0.1))}
    moved: dict[int, Assigned] = {}
    while not moved:
        moved = {bundle: one for bundle, one in moves(found.decide(10 * SECOND), before).items() if bundle in used}
    assert all(one.standby == before[bundle].broker for bundle, one in moved.items())


def test_the_standby_of_a_bundle_that_belongs_to_a_place_is_the_second_best() -> None:
    found = World(Leader(AssignmentPolicy(lowest_latency, is_by_place=True)))
    for name in ("r0", "r1", "r2"):
        found.add(name, "routing")
    found.add("e0", "edge", frozenset({7}))
    found.reports["e0"] = ReportRecord(latency_us={"r0": 80_000, "r1": 9_000, "r2": 2_000})
    found.decide()
    assert (found.assigned[7].broker, found.assigned[7].standby) == ("r2", "r1")


def test_a_broker_that_is_leaving_stands_by_for_nothing() -> None:
    found = world()
    found.reports["r2"] = ReportRecord(is_leaving=True)
    found.decide(SECOND // 4)
    assert "r2" not in {one.standby for one in found.assigned.values()}


def test_a_broker_that_most_of_its_edges_cannot_reach_is_replaced_before_its_session_expires() -> None:
    found = world()
    before = dict(found.assigned)
    carried = {bundle for bundle, one in found.assigned.items() if one.broker == "r1"}
    stood_by = {bundle for bundle, one in found.assigned.items() if one.standby == "r1"}
    users = [edge for edge, used in found.used.items() if used & (carried | stood_by)]
    found.suspects = dict.fromkeys(users[: len(users) // 2], frozenset({"r1"}))
    assert not found.decide(0)
    found.suspects = dict.fromkeys(users[: len(users) // 2 + 1], frozenset({"r1"}))
    assert moves(found.decide(0), before).keys() == carried
    assert "r1" not in found.counts()


def test_a_suspicion_of_brokers_that_are_not_there_or_do_not_use_it_counts_for_nothing() -> None:
    found = world()
    found.add("idle", "edge")
    found.suspects = {"idle": frozenset({"r0", "r1", "r2"}), "ghost": frozenset({"r0", "r1", "r2"})}
    assert suspected(found.seen) == frozenset()
    assert not found.decide(0)


def test_a_broker_that_was_not_reached_gets_nothing_for_a_minute_unless_it_registers_anew() -> None:
    found = world()
    found.suspects = dict.fromkeys(found.used, frozenset({"r1"}))
    found.decide(0)
    found.suspects = {}
    del found.members["r2"]
    found.decide(SECOND)
    assert found.counts().keys() == {"r0"}
    found.add("r2", "routing")
    found.decide(SECOND)
    assert found.counts().keys() == {"r0", "r2"}
    again = world()
    again.suspects = dict.fromkeys(again.used, frozenset({"r1"}))
    again.decide(0)
    again.suspects = {}
    again.decide(DISTRUST + SECOND)
    assert again.counts().keys() == {"r0", "r1", "r2"}
    again.suspects = dict.fromkeys(again.used, frozenset({"r1"}))
    again.decide(0)
    again.suspects = {}
    again.add("r1", "routing")
    again.decide(SECOND)
    assert again.counts().keys() == {"r0", "r1", "r2"}


def test_without_any_other_broker_bundles_stay_where_they_are() -> None:
    found = world(routing=1)
    before = dict(found.assigned)
    found.suspects = dict.fromkeys(found.used, frozenset({"r0"}))
    assert not found.decide()
    del found.members["r0"]
    assert not found.decide().assigned
    assert found.assigned == before


def test_a_broker_that_comes_gets_bundles_that_nobody_uses_and_no_others() -> None:
    found = world()
    used = frozenset().union(*found.used.values())
    before = dict(found.assigned)
    found.add("r3", "routing")
    moved = moves(found.decide(), before)
    assert moved
    assert not moved.keys() & used
    assert {one.broker for one in moved.values()} == {"r3"}
    assert max(found.counts().values()) - min(found.counts().values()) <= 2


def test_a_broker_that_is_leaving_is_drained_and_then_carries_nothing() -> None:
    found = world()
    found.reports["r2"] = ReportRecord(is_leaving=True)
    rounds = 0
    while found.counts()["r2"]:
        found.decide(SECOND // 4)
        rounds += 1
        assert rounds < 30
    assert found.counts().keys() == {"r0", "r1"}
    assert {"its broker is leaving"} <= {one.why for one in found.assigned.values()}


def test_a_lasting_gap_of_load_moves_some_bundles_and_not_back() -> None:
    found = world(routing=2)
    used = frozenset().union(*found.used.values())
    found.add("r2", "routing")
    moved: Counter[int] = Counter()
    gaps = []
    for _ in range(60):
        counts = Counter(found.assigned[bundle].broker for bundle in used)
        loads = {name: 1.2 * counts[name] / len(used) for name in ("r0", "r1", "r2")}
        found.reports |= {name: ReportRecord(load=load) for name, load in loads.items()}
        gaps.append(max(loads.values()) - min(loads.values()))
        moved.update(found.decide(10 * SECOND).assigned.keys() & used)
    assert gaps[0] > 0.4
    assert gaps[-1] <= 0.16
    assert max(moved.values()) == 1
    assert sum(moved.values()) <= len(used) / 2


def test_latency_places_a_bundle_when_it_is_first_used_where_its_edges_are_near() -> None:
    found = World(Leader(AssignmentPolicy(lowest_latency, is_by_place=True)))
    for name in ("r0", "r1"):
        found.add(name, "routing")
    found.add("e0", "edge")
    found.decide()
    far = next(bundle for bundle, one in found.assigned.items() if one.broker == "r0")
    found.used["e0"] = frozenset({far})
    found.reports["e0"] = ReportRecord(latency_us={"r0": 80_000, "r1": 2_000})
    decision = found.decide()
    assert decision.assigned[far].broker == "r1"
    assert decision.assigned[far].why == "placed by its first use"
    assert not found.decide().assigned.keys() & {far}


def test_the_wanted_number_follows_the_load_and_the_death_of_one_is_to_be_made_good() -> None:
    found = world()
    assert found.wanted == WantedRecord(3, 1, "the brokers that are there")
    del found.members["r2"]
    found.decide()
    assert found.wanted.routing == 3
    found.add("r2", "routing")
    for name in ("r0", "r1", "r2"):
        found.reports[name] = ReportRecord(load=0.95)
    for _ in range(40):
        found.decide()
    assert found.wanted.routing > 3


def test_the_wanted_number_keeps_within_the_limits_of_the_policy() -> None:
    found = world(routing=2)
    found.leader.follow(AssignmentPolicy(least_loaded, bounds=Bounds(4, 5)))
    found.decide()
    assert found.wanted is not None
    assert found.wanted.routing == 4
