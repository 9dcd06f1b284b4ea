"""Brokers register, know each other and have one leader, through every fault of the service."""

import random
from dataclasses import dataclass, field

import pytest
from faulty_connection import FaultyConnection

from examples import seeds
from overlane.coordination.assignment.placement import least_loaded
from overlane.coordination.contract import (
    Answer,
    Answered,
    Children,
    Connected,
    Create,
    Delete,
    Event,
    List,
    Missing,
    Read,
    Replace,
    Request,
    Transaction,
)
from overlane.coordination.leader import AssignmentPolicy, Leader
from overlane.coordination.participant import AssignmentChanged, Ignored, LeaderChanged, NameTaken, Notice, Participant
from overlane.coordination.records import (
    Assigned,
    BrokerRecord,
    ConfigRecord,
    LeaderRecord,
    ReportRecord,
    Role,
    ShardRecord,
    encode,
)
from overlane.coordination.reporting import REPORT_BURST
from overlane.coordination.znodes import Tree, Watch
from overlane.core.units import MS, SECOND, Nanos

SEEDS = range(seeds(100))


def record(instance: int) -> BrokerRecord:
    return BrokerRecord("west", "edge", instance, (f"127.0.0.1:{7000 + instance}",))


@dataclass
class Member:
    participant: Participant
    wire: FaultyConnection
    notices: list[Notice] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    """The first path of each transaction."""


class Site:
    """Participants of one service, on a clock of its own."""

    def __init__(self, seed: int, names: str = "abcd") -> None:
        self.luck = random.Random(seed)
        self.tree = Tree()
        self.now: Nanos = 0
        self.members: dict[str, Member] = {}
        for instance, name in enumerate(names, 1):
            self.add(name, instance)
        self.writer = self.tree.open_session()

    def add(self, name: str, instance: int, own: BrokerRecord | None = None, *, called: str = "") -> Member:
        participant = Participant(name, own or record(instance), Leader(AssignmentPolicy(least_loaded)))

        def deliver(event: Event) -> None:
            member.notices += participant.handle(event, self.now)

        def take() -> list[tuple[int, Request]]:
            asked = participant.requests.take()
            member.written += [one.operations[0].path for _, one in asked if isinstance(one, Transaction)]
            return asked

        wire = FaultyConnection(self.tree, self.luck, deliver, take, self.fire)
        member = self.members[called or name] = Member(participant, wire)
        return member

    def fire(self, fired: list[tuple[int, Watch]]) -> None:
        for member in self.members.values():
            member.wire.take(fired)

    def write(self, *operations: Create | Replace | Delete) -> None:
        _, fired = self.tree.handle(self.writer, Transaction(operations))
        self.fire(fired)

    def trouble(self, steps: int) -> None:
        for _ in range(steps):
            member = self.luck.choice(list(self.members.values()))
            match self.luck.choices(["step", "wait", "cut", "expire", "connect"], [20, 2, 0.3, 0.2, 2])[0]:
                case "step":
                    member.wire.step()
                case "wait":
                    self.wait(self.luck.randrange(200) * MS)
                case "cut" if member.wire.is_connected:
                    member.wire.cut()
                case "expire":
                    member.wire.expire()
                case "connect" if not member.wire.is_connected:
                    member.wire.connect()

    def wait(self, time: Nanos) -> None:
        self.now += time
        for member in self.members.values():
            member.notices += member.participant.tick(self.now)

    def settle(self) -> None:
        """All are connected, and everything under way comes to its end."""
        for member in self.members.values():
            if not member.wire.is_connected:
                member.wire.connect()
        for _ in range(40):
            while any(member.wire.step() for member in self.members.values()):
                pass
            self.wait(SECOND)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_know_each_other_and_one_leader_in_the_end(seed: int) -> None:
    site = Site(seed)
    site.trouble(600)
    site.settle()
    participants = [member.participant for member in site.members.values()]
    expected = {name: record(instance) for instance, name in enumerate("abcd", 1)}
    assert [one.members for one in participants] == 4 * [expected]
    assert len({one.leader for one in participants}) == 1
    leaders = [one.name for one in participants if one.is_leader]
    assert leaders == [participants[0].leader.name]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_lead_in_one_epoch_and_epochs_grow(seed: int) -> None:
    site = Site(seed)
    led: dict[int, str] = {}
    for _ in range(60):
        site.trouble(20)
        for member in site.members.values():
            told = [one for one in member.notices if isinstance(one, LeaderChanged) and one.name is not None]
            for one in told:
                assert one.name is not None
                assert led.setdefault(one.epoch, one.name) == one.name
            assert [one.epoch for one in told] == sorted(one.epoch for one in told)


def test_a_lost_leader_is_replaced() -> None:
    site = Site(1)
    site.settle()
    (first,) = [name for name, member in site.members.items() if member.participant.is_leader]
    site.members[first].wire.expire()
    del site.members[first]
    site.settle()
    leaders = {member.participant.leader.name for member in site.members.values()}
    assert len(leaders) == 1
    assert leaders != {first}
    assert all(first not in member.participant.members for member in site.members.values())


def test_without_the_service_everything_that_was_known_stays() -> None:
    site = Site(2)
    site.settle()
    shard = ShardRecord(1, {5: Assigned("a", 0, "placed")})
    site.write(Create("/assignments/5", encode(shard)), Create("/config", encode(ConfigRecord(3, "text"))))
    site.settle()
    for member in site.members.values():
        member.wire.expire()
    site.wait(7 * 86_400 * SECOND)
    for member in site.members.values():
        assert sorted(member.participant.members) == ["a", "b", "c", "d"]
        assert member.participant.assigned == shard.bundles
        assert member.participant.config == ConfigRecord(3, "text")
        assert not member.participant.is_leader
    site.settle()
    assert sum(member.participant.is_leader for member in site.members.values()) == 1


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_an_assignment_in_many_shards_is_told_once_and_the_last_word_is_told_through_all_trouble(seed: int) -> None:
    site = Site(seed)
    site.settle()
    for member in site.members.values():
        member.notices.clear()
    shards = {f"/assignments/{one}": {one: Assigned("a", 0, "placed")} for one in range(16)}
    site.write(*(Create(path, encode(ShardRecord(1, bundles))) for path, bundles in shards.items()))
    site.settle()
    for member in site.members.values():
        told = [one.assigned for one in member.notices if isinstance(one, AssignmentChanged)]
        assert told == [{one: Assigned("a", 0, "placed") for one in range(16)}]
    site.write(*(Replace(path, encode(ShardRecord(2, bundles))) for path, bundles in shards.items()))
    site.trouble(300)
    site.write(Replace("/assignments/3", encode(ShardRecord(3, {3: Assigned("b", 0, "moved")}))))
    site.settle()
    for member in site.members.values():
        told = [one.assigned for one in member.notices if isinstance(one, AssignmentChanged)]
        assert told[-1][3].broker == "b"
        assert told[-1] == member.participant.assigned


def test_a_broker_that_was_restarted_takes_its_node_over_from_its_former_session() -> None:
    site = Site(3)
    site.settle()
    site.members["a"].wire.cut()  # its host was lost; its session lives on for a while
    again = site.add("a", 1, called="a, restarted")
    del site.members["a"]
    site.settle()
    assert site.tree._entries["/brokers/edges/west/a"].node.owner == again.wire.session
    assert not any(isinstance(one, NameTaken) for one in again.notices)
    assert [one.participant.continued_at is not None for one in (again, site.members["b"])] == [True, False]


def test_another_broker_with_the_same_name_is_refused_until_the_first_is_gone() -> None:
    site = Site(4)
    site.settle()
    other = site.add("a", 9, called="the other")
    site.settle()
    assert other.notices.count(NameTaken("a")) == 1
    assert site.members["b"].participant.members["a"] == record(1)
    site.members["a"].wire.expire()
    del site.members["a"]
    site.settle()
    assert site.members["b"].participant.members["a"] == record(9)


def in_domain(domain: str, instance: int, role: Role = "edge") -> BrokerRecord:
    return BrokerRecord(domain, role, instance, (f"127.0.0.1:{7000 + instance}",))


def test_an_edge_knows_the_routing_brokers_and_its_domain_and_reads_nothing_else() -> None:
    site = Site(10, "")
    others = {f"far-{number}": in_domain(f"domain-{number % 5}", number) for number in range(20, 40)}
    near = {"a": in_domain("west", 1), "b": in_domain("west", 2), "r": in_domain("core", 3, "routing")}
    for name, own in {**others, **near}.items():
        site.add(name, own.instance, own)
    site.add("plain", 9, in_domain("west", 9, "plain"))
    site.settle()
    edge = site.members["a"].participant
    assert edge.members == near
    assert [path for path in edge.follower.found if "domain-" in path] == []
    assert site.members["r"].participant.members.keys() == {*others, *near, "plain"}
    assert site.members["plain"].participant.members.keys() == {*others, *near, "plain"}
    # One more elsewhere is not even noticed.
    watched = edge.requests._last
    site.add("far-40", 40, in_domain("domain-9", 40))
    site.settle()
    assert "far-40" in site.members["r"].participant.members
    assert edge.requests._last == watched


def test_a_broker_that_was_restarted_in_another_domain_leaves_its_former_one() -> None:
    site = Site(11)
    site.settle()
    site.members["a"].wire.cut()  # its session lives on for a while
    moved = in_domain("east", 1)
    site.add("a", 1, moved, called="a, moved")
    del site.members["a"]
    site.add("r", 8, in_domain("core", 8, "routing"))
    site.settle()
    assert "/brokers/edges/west/a" not in site.tree._entries
    assert site.members["r"].participant.members["a"] == moved
    assert "a" not in site.members["b"].participant.members


@pytest.mark.parametrize("own", [in_domain("east", 9), in_domain("core", 9, "routing"), in_domain("west", 9, "plain")])
def test_a_name_is_taken_in_whatever_domain_and_role_until_its_broker_is_gone(own: BrokerRecord) -> None:
    site = Site(12)
    site.settle()
    other = site.add("a", 9, own, called="the other")
    observer = site.add("r", 8, in_domain("core", 8, "routing"))
    site.settle()
    assert other.notices.count(NameTaken("a")) == 1
    assert observer.participant.members["a"] == record(1)
    site.members["a"].wire.expire()
    site.settle()
    # Whoever is faster has the name now; the other is told.
    first = site.members["a"]
    assert observer.participant.members["a"] in (record(1), own)
    registered = [path for path in site.tree._entries if path.endswith("/a") and path.startswith("/brokers/")]
    assert len(registered) == 1
    if observer.participant.members["a"] == own:
        assert first.notices.count(NameTaken("a")) == 1


def test_a_folder_that_somebody_deleted_is_made_again() -> None:
    site = Site(13, "ab")
    site.settle()
    site.write(*(Delete(f"/brokers/edges/west/{name}") for name in "ab"), Delete("/brokers/edges/west"))
    site.settle()
    for name in "ab":
        assert site.members[name].participant.members.keys() == {"a", "b"}


def test_a_leader_lists_reports_again_behind_folders_that_had_to_be_made() -> None:
    """ZooKeeper's answer that a node is missing takes two round trips: lists may be answered before it."""
    participant = Participant("r", in_domain("core", 1, "routing"), Leader(AssignmentPolicy(least_loaded)))
    tree = Tree()
    client = tree.open_session()
    last, late = Read("/brokers/others"), list[Answered]()
    listed: list[Answer] = []

    def answer_all() -> None:
        for _ in range(100):
            for number, request in participant.requests.take():
                answered = Answered(number, tree.handle(client, request)[0])
                if request == List("/reports"):
                    listed.append(answered.answer)
                if request == last and not late:
                    late.append(answered)
                else:
                    participant.handle(answered, 0)

    participant.handle(Connected(client.session, is_new=True), 0)
    answer_all()
    assert [one.answer for one in late] == [Missing()]
    participant.handle(late[0], 0)
    answer_all()
    assert participant.is_leader
    assert listed[-1] == Children(())


def test_brokers_that_find_all_folders_write_no_more_than_their_names_registrations_and_reports() -> None:
    site = Site(14, "ab")
    site.settle()
    late = site.add("c", 3)
    late.participant.report(ReportRecord(0.1, "", ""))
    site.settle()
    assert site.members["a"].participant.members.keys() == {"a", "b", "c"}
    assert sorted(late.written) == ["/names/c", "/reports/c", "/reports/c"]  # a report is replaced, or else created


@pytest.mark.parametrize("folder", ["/reports", "/assignments", "/epoch"])
def test_what_else_somebody_deleted_is_made_again(folder: str) -> None:
    site = Site(15, "ab")
    site.add("r", 3, in_domain("core", 3, "routing"))
    site.settle()
    below = sorted(path for path in site.tree._entries if path.startswith(f"{folder}/"))
    site.write(*map(Delete, below), Delete(folder))
    if folder == "/epoch":
        site.write(Delete("/leader"))
    site.members["a"].participant.report(ReportRecord(0.5, "", ""))
    site.settle()
    assert folder in site.tree._entries
    assert [path for path in below if path not in site.tree._entries] == []


@pytest.mark.parametrize("garbage", [b"", b"{", b'{"domain": "x"}', b"\xff\xfe", b"[" * 70_000])
def test_a_malformed_znode_changes_nothing_and_is_reported(garbage: bytes) -> None:
    site = Site(5)
    site.settle()
    shard = ShardRecord(1, {5: Assigned("a", 0, "placed")})
    site.write(Create("/assignments/5", encode(shard)), Create("/config", encode(ConfigRecord(3, "text"))))
    site.settle()
    before = [(one.participant.assigned, one.participant.config) for one in site.members.values()]
    site.write(
        Replace("/assignments/5", garbage), Replace("/config", garbage), Create("/brokers/edges/west/evil", garbage)
    )
    site.settle()
    assert [(one.participant.assigned, one.participant.config) for one in site.members.values()] == before
    for member in site.members.values():
        assert "evil" not in member.participant.members
        reported = {one.path for one in member.notices if isinstance(one, Ignored)}
        assert {"/assignments/5", "/config", "/brokers/edges/west/evil"} <= reported


def test_a_node_that_somebody_deleted_is_made_again() -> None:
    site = Site(6)
    site.settle()
    site.write(Delete("/brokers/edges/west/a"), Delete("/leader"))
    site.settle()
    assert site.members["b"].participant.members["a"] == record(1)
    assert sum(member.participant.is_leader for member in site.members.values()) == 1


def test_a_leader_that_nobody_elected_is_not_followed_for_longer_than_it_lasts() -> None:
    site = Site(7)
    site.settle()
    site.write(Delete("/leader"), Create("/leader", encode(LeaderRecord("mallory")), is_ephemeral=True))
    site.settle()
    assert {member.participant.leader.name for member in site.members.values()} == {"mallory"}
    site.fire(site.tree.end_session(site.writer.session))
    site.settle()
    assert sum(member.participant.is_leader for member in site.members.values()) == 1


def test_a_changed_address_is_told_to_all() -> None:
    site = Site(8)
    site.settle()
    moved = BrokerRecord("west", "edge", 1, ("10.1.1.1:7000",))
    site.members["a"].participant.register(moved)
    site.settle()
    assert site.members["d"].participant.members["a"] == moved


def test_reports_are_written_at_once_and_not_more_than_20_a_second_in_the_long_run() -> None:
    site = Site(9, "a")
    site.settle()
    member = site.members["a"]
    versions = []
    for number in range(200):
        member.participant.report(ReportRecord(load=number / 200))
        site.wait(5 * MS)
        while member.wire.step():
            pass
        node = site.tree._entries.get("/reports/a")
        versions.append(-1 if node is None else node.node.version)
    assert versions[:4] == [0, 1, 2, 3]
    assert versions[-1] <= 20 + REPORT_BURST
    assert versions[-1] - versions[99] in (9, 10, 11)
    site.settle()
    assert site.tree._entries["/reports/a"].node.data == encode(ReportRecord(load=0.995))


def test_changes_while_a_report_is_written_are_one_report() -> None:
    site = Site(14, "a")
    site.settle()
    member = site.members["a"]
    member.participant.report(ReportRecord(load=0.0))
    site.wait(0)
    while member.wire.step():
        pass
    before = site.tree._entries["/reports/a"].node.version
    for number in range(1_000):
        member.participant.report(ReportRecord(load=number / 1_000))
        site.wait(0)
    while member.wire.step():
        pass
    node = site.tree._entries["/reports/a"].node
    assert (node.version - before, node.data) == (2, encode(ReportRecord(load=0.999)))


def test_an_edge_of_another_domain_is_known_when_it_is_asked_for_by_name() -> None:
    site = Site(1, "ab")
    east = BrokerRecord("east", "edge", 9, ("127.0.0.1:7009",))
    site.settle()
    one = site.members["a"].participant
    one.know(["z", "nobody"])
    site.settle()
    assert set(one.members) == {"a", "b"}
    site.add("z", 9, east)
    site.settle()
    assert one.members["z"] == east
    assert "z" not in site.members["b"].participant.members
