"""Path trust: which evidence makes a source suspect whom, and when it trusts again.

The map: a-b-c and a-d-c, and b-e, by which b can be tried apart from c.
"""

import pytest

from overlane.core.events import PathSuspected, PathTrusted
from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.links.link_health import LinkState
from overlane.core.qos import QosClass
from overlane.core.routing.route import Route
from overlane.core.routing.selection.path_trust import (
    BACKOFF_MAX,
    BACKOFF_MIN,
    REGAINED,
    SAMPLE_EVERY,
    SAMPLE_IN_DOUBT,
    SAMPLES_MAX,
    PathTrust,
)
from overlane.core.routing.selection.route_plan import RoutePlan
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.control_messages import Advert, LinkClaim

LINKS = {"ab": 10, "bc": 10, "ad": 15, "dc": 15, "be": 10}
B, D = ("a", "b", "c"), ("a", "d", "c")


class Source:
    """Broker a, with a clock and numbers of its own; a sample takes 60 ms to be confirmed."""

    def __init__(self, links: dict[str, int] = LINKS) -> None:
        self.now: Nanos = 1_000 * SECOND
        self.links = links
        self.table = LinkStateTable("a")
        self.state: dict[str, LinkState] = {}
        self.loss: dict[str, int] = {}
        self.life = dict.fromkeys(sorted({end for ends in links for end in ends}), 1)
        self._told = 0
        self.tell()
        self.trust = PathTrust("a", self.table)
        self.route = route(1, {("a", "b"), ("b", "c")}, "c")
        self._number = 0

    def tell(self) -> None:
        """Everybody advertises its links as they are."""
        self._told += 1
        for broker in self.life:
            links = []
            for ends, ms in self.links.items():
                if broker in ends:
                    peer = ends.replace(broker, "")
                    state = self.state.get(ends, LinkState.UP)
                    links.append(LinkClaim(peer, ms * 1000, 0, self.loss.get(ends, 0), 0, state))
            self.table.accept(Advert(broker, self.life[broker], self._told, links, {}, 0), self.now)

    def sample(
        self, on: Route | None = None, *working: tuple[str, ...], after: Nanos = 200 * MS
    ) -> list[tuple[str, ...]]:
        """A parcel on the route asks, with its copies; these paths work. The paths that copies took."""
        on = on or self.route
        self._number += 1
        asked = [(self._number, path) for path in ways_of(on)]
        self.trust.sent(on, self._number, 0, self.now)
        copies = self.trust.copies(on, self.now)
        for path in copies:
            self._number += 1
            self.trust.copied(on.id, path, self._number, 0, "", self.now)
            asked.append((self._number, path))
        for number, path in asked:
            if path in working:
                self.trust.confirmed(number, path[-1], path[-2], 20_000, self.now + 60 * MS)
        self.run(after)
        return copies

    def run(self, duration: Nanos) -> None:
        end = self.now + duration
        while self.trust.wake_at <= end:
            self.now = max(self.now, self.trust.wake_at)
            self.trust.tick(self.now)
        self.now = end

    def samples(self, times: int, *working: tuple[str, ...], on: Route | None = None) -> None:
        for _ in range(times):
            self.sample(on, *working)

    def effects(self) -> list[PathSuspected | PathTrusted]:
        return self.trust.take_effects()


def route(number: int, links: set[tuple[str, str]], *destinations: str) -> Route:
    made = Route(number, QosClass(), destinations, version=1)
    made.plan = RoutePlan(frozenset(links), dict.fromkeys(destinations, 20 * MS))
    return made


def ways_of(on: Route) -> list[tuple[str, ...]]:
    """The route's paths; those of these tests have no more than one broker in between."""
    return [
        ("a", hop, end)
        for start, hop in sorted(on.plan.links)
        for again, end in sorted(on.plan.links)
        if start == "a" and again == hop and end in on.destinations
    ]


SUSPECTED = PathSuspected("c", B, ("b",), (("b", "c"),))


def test_a_path_that_confirms_is_sampled_once_a_second_and_never_doubted() -> None:
    source = Source()
    for _ in range(10):
        assert source.sample(None, B, after=SAMPLE_EVERY) == []
    assert source.route.sample_at - source.now <= 0
    assert (source.effects(), source.trust.missed) == ([], 0)


def test_a_missed_sample_brings_more_of_them_and_copies_over_another_path() -> None:
    source = Source()
    source.samples(5, B)
    source.sample(None, after=SECOND)
    sent = source.now
    assert source.sample(None, D) == [D]
    assert source.route.sample_at - sent == SAMPLE_IN_DOUBT


def test_a_path_that_confirms_nothing_while_another_does_is_suspected_within_five_seconds() -> None:
    source = Source()
    source.samples(5, B)
    began = source.now
    while not source.trust.suspicions:
        source.sample(None, D)
    assert source.now - began < 5 * SECOND
    assert source.effects() == [SUSPECTED]
    assert source.trust.avoided(1) == source.trust.avoided(2) == {("b", "c")}


def test_nobody_is_suspected_where_no_path_confirms_anything() -> None:
    source = Source()
    source.samples(5, B)
    source.samples(200)
    assert source.effects() == []


def test_nobody_is_suspected_without_another_path() -> None:
    source = Source()
    source.state = {"ad": LinkState.FAILED}
    source.tell()
    source.samples(5, B)
    source.samples(100)
    assert source.effects() == []


@pytest.mark.parametrize("state", [LinkState.SUSPECT, LinkState.FAILED])
def test_what_the_map_tells_is_no_evidence(state: LinkState) -> None:
    source = Source()
    source.samples(5, B)
    source.state = {"bc": state}
    source.tell()
    source.samples(50, D)
    assert (source.effects(), source.trust.missed) == ([], 0)


def test_loss_that_is_claimed_excuses_loss() -> None:
    source = Source()
    source.loss = {"bc": 500_000}
    source.tell()
    for number in range(200):
        source.sample(None, D, *([B] if number % 2 else []))
    assert source.effects() == []


def test_a_path_that_loses_half_without_claiming_so_is_suspected() -> None:
    source = Source()
    source.samples(5, B)
    for number in range(60):
        source.sample(None, D, *([B] if number % 2 else []))
    assert source.effects() == [SUSPECTED]


def test_confirmations_that_only_come_late_take_the_evidence_back() -> None:
    source = Source()
    source.samples(5, B)
    numbers = []
    for _ in range(8):
        source._number += 1
        numbers.append(source._number)
        source.trust.sent(source.route, source._number, 0, source.now)
        source.run(200 * MS)
    for number in numbers:
        source.trust.confirmed(number, "c", "b", 20_000, source.now)
    source.samples(20, B, D)
    assert source.effects() == []


def test_a_broker_that_passes_other_routes_is_avoided_by_the_route_alone_that_it_drops() -> None:
    source = Source()
    other = route(2, {("a", "b"), ("b", "c")}, "c")
    for _ in range(5):
        source.sample(None, B)
        source.sample(other, B)
    for _ in range(30):
        source.sample(None, D, after=100 * MS)
        source.sample(other, B, after=100 * MS)
    assert source.effects() == [SUSPECTED]
    assert (source.trust.avoided(1), source.trust.avoided(2)) == (frozenset((("b", "c"),)), frozenset())


def test_of_a_route_with_two_paths_the_one_that_is_dead_is_found_out() -> None:
    source = Source()
    both = route(1, {("a", "b"), ("b", "c"), ("a", "d"), ("d", "c")}, "c")
    source.samples(5, B, D, on=both)
    source.samples(20, D, on=both)
    assert source.effects() == [SUSPECTED]


MESH = {"ab": 10, "bf": 10, "ad": 12, "df": 12, "fc": 10, "ag": 30, "gc": 30}
"""Broker f has its parcels over b and over d; answers over f return over b."""
OVER_F = {("a", "b"), ("b", "f"), ("a", "d"), ("d", "f"), ("f", "c"), ("a", "g"), ("g", "c")}


def test_a_last_hop_is_not_suspected_for_answers_that_another_broker_may_have_dropped() -> None:
    source = Source(MESH)
    source.samples(40, ("a", "g", "c"), on=route(1, OVER_F, "c"))
    assert source.effects() == []


def test_a_last_hop_is_suspected_where_the_way_back_from_it_is_known_to_work() -> None:
    source = Source(MESH)
    on, other = route(1, OVER_F, "c"), route(2, {("a", "b"), ("b", "f")}, "f")
    for _ in range(40):
        source.sample(on, ("a", "g", "c"), after=100 * MS)
        source.sample(other, ("a", "b", "f"), after=100 * MS)
    assert source.effects() == [PathSuspected("c", ("a", "b", "f", "c"), ("f",), (("f", "c"),))]


def test_a_link_of_its_own_to_a_destination_is_not_suspected() -> None:
    source = Source({"ac": 10, "ad": 15, "dc": 15})
    on = route(1, {("a", "c"), ("a", "d"), ("d", "c")}, "c")
    source.samples(40, D, on=on)
    assert source.effects() == []


def doubted() -> Source:
    source = Source()
    source.samples(5, B)
    source.samples(30, D)
    assert source.effects() == [SUSPECTED]
    source.route.plan = RoutePlan(frozenset((("a", "d"), ("d", "c"))), {"c": 30 * MS})
    source.route.version += 1
    return source


def test_a_suspect_is_tried_after_the_back_off_with_copies_and_trusted_when_they_are_confirmed() -> None:
    source = doubted()
    retry_at = source.trust.suspicions[0].retry_at
    while source.now < retry_at:
        assert source.sample(None, B, D) == []
    for _ in range(REGAINED - 1):
        assert source.sample(None, B, D) == [B]
    assert source.effects() == []
    source.sample(None, B, D)
    assert source.effects() == [PathTrusted("c", B, ("b",))]
    assert source.trust.avoided(1) == frozenset()
    source.samples(10, B, D)
    assert source.effects() == []


def test_the_back_off_doubles_with_every_try_that_fails_up_to_an_hour() -> None:
    source = doubted()
    suspicion = source.trust.suspicions[0]
    waits = []
    for _ in range(10):
        source.run(suspicion.retry_at - source.now)
        assert source.sample(None, D, after=SECOND) == [B]
        waits.append(suspicion.retry_at - source.now + SECOND)
    assert [round(wait / (60 * SECOND)) for wait in waits] == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert BACKOFF_MIN < waits[0] <= waits[-1] <= BACKOFF_MAX + SECOND
    assert source.effects() == []


def test_a_relapse_begins_with_a_longer_back_off() -> None:
    source = doubted()
    source.run(source.trust.suspicions[0].retry_at - source.now)
    source.samples(REGAINED, B, D)
    source.route = route(1, {("a", "b"), ("b", "c")}, "c")
    source.route.version = 3
    source.samples(30, D)
    assert source.trust.suspicions[0].retry_at - source.now > BACKOFF_MIN


def test_another_life_of_the_suspect_is_tried_at_once() -> None:
    source = doubted()
    source.life["b"] = 2
    source.tell()
    source.trust.sweep([1], source.now)
    assert source.sample(None, B, D) == [B]


def test_a_link_that_is_no_more_is_not_suspect() -> None:
    source = doubted()
    source.table.forget("b", source.now)
    source.trust.sweep([1], source.now)
    assert (source.trust.suspicions, source.effects()) == ([], [PathTrusted("c", B, ("b",))])


def test_what_is_remembered_is_bounded() -> None:
    source = Source()
    for number in range(2 * SAMPLES_MAX):
        source.trust.copied(number, B, number + 1, 0, "", source.now)
    assert len(source.trust._samples) <= SAMPLES_MAX
    assert len(source.trust._trails) <= SAMPLES_MAX
    source.run(200 * SECOND)
    source.trust.sweep([], source.now)
    assert (source.trust._samples, source.trust._trails, source.trust.wake_at) == ({}, {}, NEVER)


def test_confirmations_of_what_was_never_asked_change_nothing() -> None:
    source = Source()
    source.trust.confirmed(77, "c", "b", 0, source.now)
    source.trust.sent(source.route, 78, 0, source.now)
    source.trust.confirmed(78, "c", "d", 0, source.now)
    source.trust.confirmed(78, "e", "b", 0, source.now)
    assert 78 in source.trust._samples


def test_what_is_sent_again_does_not_take_turns_with_a_suspect() -> None:
    source = Source()
    assert (source.trust.other_path(B), source.trust.other_path(D)) == (D, B)
    source = doubted()
    assert source.trust.other_path(D) is None
