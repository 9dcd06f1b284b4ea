"""Leaders and participants through every fault of the service: lost answers, late and reordered watches, cuts, expired
sessions, killed and leaving routing brokers.

`OVERLANE_SEEDS=5000 pytest tests/coordination/test_leader_soak.py` runs as many seeds.
"""

import os

import pytest
from coordination_site import Site

from examples import seeds
from overlane.coordination.contract import Read
from overlane.coordination.leader import Decision, Seen
from overlane.coordination.records import pack
from overlane.core.units import MS, SECOND, Nanos

SEEDS = range(int(os.environ.get("OVERLANE_SEEDS", seeds(40))))


@pytest.mark.parametrize("seed", SEEDS)
def test_after_all_faults_every_bundle_has_one_living_routing_broker(seed: int) -> None:
    site = Site(seed)
    for name in ("e0", "e1", "e2", "e3"):
        site.use(name, frozenset(site.luck.sample(range(256), 10)))
    for _ in range(12):
        site.trouble(150)
        _check_fencing(site)
    for member in site.members.values():
        if member.role == "routing":
            member.is_leaving = False
            site.report(member)
    site.settle()
    _check_fencing(site)
    homes = site.homes()
    living = {name for name, member in site.members.items() if member.role == "routing"}
    assert sorted(homes) == list(range(256))
    assert set(homes.values()) <= living
    assert len(site.leaders()) == 1
    for name, member in site.members.items():
        assert member.participant.members == site.known_to(name)
    # When distrust has ended as well, nothing happens any more: no bundle wanders about.
    site.settle(60, step=SECOND)
    writes, homes = len(site.tree.writes), site.homes()
    site.settle(60, step=SECOND)
    assert len(site.tree.writes) == writes
    assert site.homes() == homes


def _check_fencing(site: Site) -> None:
    """Leaders write one after the other: none of a former epoch after one of a later."""
    epochs = [epoch for epoch, _ in site.tree.writes]
    assert epochs == sorted(epochs)
    assert len(set(site.tree.writes)) == len(set(epochs)), "two sessions wrote in one epoch"


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_due_again_right_after_what_was_due_was_done(seed: int) -> None:
    """A driver would wake up for nothing, again and again, for as long as an answer takes."""
    site = Site(seed)
    site.settle()
    (leader,) = site.leaders()
    leading = site.members[leader].participant.leading
    assert leading is not None
    site.kill(next(name for name in ("r0", "r1") if name != leader))
    site.expire_dead()
    while leading._writing is None:
        if not site.members[leader].wire.step():
            site.wait(SECOND)
    for _ in range(400):
        site.wait(0)
        for member in site.members.values():
            assert member.participant.next_deadline() > site.now
        site.trouble(5)


def test_a_deposed_leader_whose_write_arrives_late_changes_nothing() -> None:
    site = Site(1, routing=3, edges=2)
    site.use("e0", frozenset(range(128)))
    site.use("e1", frozenset(range(128, 256)))
    site.settle()
    (former,) = site.leaders()
    lost = next(name for name in ("r0", "r1", "r2") if name != former)
    slow = site.members[former]
    site.kill(lost)
    site.expire_dead()
    leading = slow.participant.leading
    assert leading is not None
    while leading._writing is None:
        if not slow.wire.step():
            site.wait(SECOND)
    # Its transaction is on the way. Meanwhile edges do not reach it, and another takes its place and decides.
    others = [member for name, member in site.members.items() if name != former]
    for edge in ("e0", "e1"):
        site.members[edge].participant.suspect((former,))
    for _ in range(40):
        while sum(member.wire.step() for member in others):
            pass
        for member in others:
            member.participant.tick(site.now)
        site.now += SECOND // 4
    (later,) = [name for name in site.leaders() if name != former]
    assert set(site.tree.homes.values()) == {later}
    written = list(site.tree.writes)
    while slow.wire.step():
        pass
    assert [session for _, session in site.tree.writes[len(written) :] if session == slow.wire.session] == []
    _check_fencing(site)


def test_a_leader_that_has_lost_the_service_while_it_read_a_report_does_not_ask_for_it_again_and_again() -> None:
    site = Site(3, routing=3, edges=2)
    site.settle()
    for name in ("r0", "r1", "r2"):
        leader = site.members[name]
        site.use("e0", frozenset({int(name[1:])}))
        while leader.participant.leading is not None and not leader.participant.requests.is_asked(Read("/reports/e0")):
            if not sum(member.wire.step() for member in site.members.values()):
                site.wait(50 * MS)
            if not leader.participant.leading._is_following:
                break  # one that does not stand by reads no reports
        leader.wire.cut()
        steps = 0
        while leader.wire.step():
            steps += 1
            assert steps < 100
        leader.wire.connect()
        site.settle(2)


def test_what_clients_use_costs_the_leader_no_decision_and_no_write() -> None:
    site = Site(2, routing=2, edges=4)
    site.settle()
    (leading,) = [member.participant.leading for name, member in site.members.items() if name in site.leaders()]
    assert leading is not None
    decided: list[Seen] = []
    decide = leading.leader.decide

    def counted(seen: Seen, now: Nanos, unix_s: int) -> Decision:
        decided.append(seen)
        return decide(seen, now, unix_s)

    leading.leader.decide = counted  # type: ignore[method-assign]
    writes = len(site.tree.writes)
    for bundle in range(60):
        site.use("e0", frozenset(range(bundle + 1)))
        site.wait(50 * MS)
        while sum(member.wire.step() for member in site.members.values()):
            pass
    assert leading.reports["e0"].wants == pack(frozenset(range(60)))
    assert len(decided) <= 1  # that of the round
    assert len(site.tree.writes) == writes
    # Who leaves is drained at once.
    leaving = next(name for name in ("r0", "r1") if name not in site.leaders())
    site.members[leaving].is_leaving = True
    site.report(site.members[leaving])
    site.settle(20)
    assert leaving not in site.homes().values()
