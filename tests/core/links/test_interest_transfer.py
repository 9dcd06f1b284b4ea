"""Sets of filters of any size: told in parts, on request, at the cost of what changes, and never beyond the limits."""

import sys
from collections import deque
from types import FrameType
from typing import Any

import pytest
from handwired import Overlay
from hypothesis import given, settings
from hypothesis import strategies as st

from overlane.core.events import Close, Erase, Save, Subscribe
from overlane.core.gossip import interest as interest_module
from overlane.core.gossip.interest import ASK_AGAIN, RemoteInterest, mention
from overlane.core.gossip.local_interest import LocalInterest
from overlane.core.limits import TOPIC_BYTES_MAX
from overlane.core.links.interest_transfer import InterestTransfers
from overlane.core.units import SECOND
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import InterestUpdate, decode, encode
from overlane.core.wire.message_fields import PART_FILTERS_MAX

LONG = "x" * 20_000
"""So long that a part has room for one alone."""


def noted() -> None:
    pass


def needing(count: int, life: int = 1, prefix: str = "f/") -> LocalInterest:
    local = LocalInterest("b", life, noted)
    for number in range(count):
        local.add("s", f"{prefix}{number}")
    return local


def parts_of(local: LocalInterest) -> list[InterestUpdate]:
    transfers = InterestTransfers()
    transfers.want("b")
    parts = []
    while (part := transfers.next_part(lambda _: local.whole())) is not None:
        parts.append(part)
    return parts


# Telling


def test_a_large_change_is_told_as_several_small_ones() -> None:
    local = needing(1)
    assert len(local.news()) == 1
    for number in range(3 * PART_FILTERS_MAX):
        local.add("s", f"g/{number}")
    changes = local.news()
    assert [(one.base, one.sequence) for one in changes] == [(at, at + 1) for at in range(1, len(changes) + 1)]
    assert 3 <= len(changes) <= 16
    remote = RemoteInterest(noted)
    for change in (InterestUpdate("b", 1, 1, 0, ["f/0"], []), *changes):
        assert remote.accept(change)[0]
    assert remote.everything("b") == local.everything()


@pytest.mark.parametrize("count", [1, PART_FILTERS_MAX, PART_FILTERS_MAX + 1, 10_000])
def test_the_first_telling_of_a_life_is_whole_in_one_message_or_asked_for(count: int) -> None:
    local = needing(count, prefix="")
    [first] = local.news()
    assert first == (mention("b", 1, 1) if len(parts_of(local)) > 1 else InterestUpdate("b", 1, 1, 0, first.added, []))
    assert sorted(topic_filter for part in parts_of(local) for topic_filter in part.added) == local.everything().added


def test_every_part_and_change_fits_what_receivers_accept() -> None:
    local = needing(5_000)
    for number in range(30):
        local.add("s", f"{number}/".ljust(TOPIC_BYTES_MAX, "x"))
        local.add("s", f"{number}/".ljust(TOPIC_BYTES_MAX // 4, "𝄞"))
    local.add("s", "x" * (TOPIC_BYTES_MAX + 1))
    local.add("s", "𝄞" * (TOPIC_BYTES_MAX // 4 + 1))
    messages = local.news() + parts_of(local)
    for message in messages:
        frame = frame_codec.control(0, encode(message))
        assert len(frame) <= frame_codec.FRAME_BYTES_MAX
        assert decode(memoryview(frame)[9:]) == message
    told = [topic_filter for part in parts_of(local) for topic_filter in part.added]
    assert len(told) == 5_060
    assert all(len(topic_filter.encode()) <= TOPIC_BYTES_MAX for topic_filter in told)


def test_what_is_told_is_counted_in_filters_and_bytes() -> None:
    local = LocalInterest("b", 1, noted, lambda topic_filter: topic_filter != "secret")
    for topic_filter in ("ü", "secret", "x" * (TOPIC_BYTES_MAX + 1), "y"):
        local.add("s", topic_filter)
        local.add("t", topic_filter)
    assert local.size == (2, 3)
    local.news()
    for topic_filter in ("ü", "secret", "x" * (TOPIC_BYTES_MAX + 1), "y"):
        local.remove("s", topic_filter)
    assert local.size == (2, 3)
    local.remove("t", "ü")
    local.remove("t", "secret")
    assert local.size == (1, 1)


# Hearing


def test_a_set_in_parts_takes_effect_as_it_comes_and_lets_go_at_its_end() -> None:
    remote = RemoteInterest(noted)
    remote.accept(InterestUpdate("b", 1, 1, -1, ["old", "kept"], []))
    assert remote.accept(InterestUpdate("b", 2, 5, -1, ["kept", "new"], [], 0, True), "n") == (True, False, ["new"])
    assert [bool(remote.needing(topic)) for topic in ("old", "kept", "new")] == [True, True, True]
    assert (remote.version_of("b"), remote.whole("b")) == ((0, 0), None)
    assert remote.accept(InterestUpdate("b", 2, 5, -1, ["newer"], [], 1, False), "n") == (True, False, ["newer"])
    assert [bool(remote.needing(topic)) for topic in ("old", "kept", "new", "newer")] == [False, True, True, True]
    assert remote.version_of("b") == (2, 5)


def test_a_part_out_of_turn_or_of_another_neighbour_is_not_taken() -> None:
    remote = RemoteInterest(noted)
    remote.accept(InterestUpdate("b", 1, 5, -1, ["x"], [], 0, True), "n")
    for message, sender in (
        (InterestUpdate("b", 1, 5, -1, ["y"], [], 2, True), "n"),
        (InterestUpdate("b", 1, 5, -1, ["y"], [], 1, True), "m"),
        (InterestUpdate("b", 1, 6, -1, ["y"], [], 1, True), "n"),
        (InterestUpdate("b", 1, 6, -1, ["y"], [], 0, True), "m"),
        (InterestUpdate("b", 1, 6, 5, ["y"], []), "m"),
    ):
        assert remote.accept(message, sender) == (False, False, [])
    assert remote.needing("y") == ()
    assert remote.accept(InterestUpdate("b", 1, 6, 5, ["y"], []), "n") == (True, False, ["y"])
    assert remote.accept(InterestUpdate("b", 1, 5, -1, [], [], 1, False), "n") == (True, False, [])
    assert remote.version_of("b") == (1, 6)


def test_a_neighbour_that_stops_telling_is_replaced_by_one_that_does() -> None:
    remote = RemoteInterest(noted)
    remote.accept(InterestUpdate("b", 1, 5, -1, ["x"], [], 0, True), "n", 0)
    offer = mention("b", 1, 6)
    assert remote.accept(offer, "m", ASK_AGAIN - 1) == (False, False, [])
    assert remote.accept(offer, "m", ASK_AGAIN) == (False, True, [])
    assert remote.accept(offer, "n", ASK_AGAIN + 1) == (False, False, [])
    assert remote.accept(InterestUpdate("b", 1, 6, -1, ["y"], [], 0, False), "m", ASK_AGAIN + 2) == (True, False, ["y"])
    assert [bool(remote.needing(topic)) for topic in "xy"] == [False, True]


@pytest.mark.parametrize(
    "later", [InterestUpdate("b", 1, 6, -1, ["x", "y"], [], 0, True), InterestUpdate("b", 1, 6, 5, ["y"], [])]
)
def test_what_another_neighbour_told_in_vain_is_asked_for_when_the_set_is_whole(later: InterestUpdate) -> None:
    remote = RemoteInterest(noted)
    remote.accept(InterestUpdate("b", 1, 5, -1, ["x"], [], 0, True), "n")
    assert remote.accept(later, "m", 1) == (False, False, [])
    remote.accept(InterestUpdate("b", 1, 5, -1, [], [], 1, False), "n", 2)
    assert (remote.version_of("b"), remote.take_missed("b", 2), remote.take_missed("b", 2)) == ((1, 5), "m", None)
    assert remote.lost("m") == ["b"], "it was asked"


def test_what_was_told_in_vain_is_not_asked_for_where_it_is_known_or_its_teller_is_lost() -> None:
    remote = RemoteInterest(noted)
    for known, lost in (((1, 6), "n"), ((2, 5), "m")):
        remote.accept(InterestUpdate("b", *known, -1, ["x"], [], 0, True), "n")
        remote.accept(InterestUpdate("b", known[0], 6, -1, ["y"], [], 0, True), "m", 1)
        if lost == "m":
            remote.lost(lost)
        remote.accept(InterestUpdate("b", *known, -1, [], [], 1, False), "n", 2)
        assert remote.take_missed("b", 2) is None


def test_when_the_neighbour_that_tells_is_lost_the_set_is_asked_for_elsewhere() -> None:
    remote = RemoteInterest(noted)
    remote.accept(InterestUpdate("b", 1, 5, -1, ["x"], [], 0, True), "n")
    remote.accept(mention("c", 1, 5), "n")
    assert (remote.lost("m"), remote.lost("n"), remote.lost("n")) == ([], ["b", "c"], [])
    assert remote.accept(InterestUpdate("b", 1, 5, -1, ["y"], [], 0, False), "m") == (True, False, ["y"])
    assert remote.everything("b") == InterestUpdate("b", 1, 5, -1, ["y"], [])


def test_a_flood_of_unfinished_parts_is_kept_up_to_the_limit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interest_module, "FILTER_BYTES_MAX", 1 << 20)
    remote = RemoteInterest(noted)
    for number in range(400):
        remote.accept(InterestUpdate("b", 1, 5, -1, [f"{number}/{LONG}"], [], number, True), "n")
    kept = sum(isinstance(effect, Save) for effect in remote.effects)
    assert kept == (2 << 20) // (len(LONG) + 4)
    assert remote.refused == 400 - kept
    for life in range(2, 10):
        for number in range(200):
            remote.accept(InterestUpdate("b", life, 5, -1, [f"{life}/{number}/{LONG}"], [], number, True), "n")
    assert len(remote._trie) <= kept + 1


def test_all_brokers_together_have_a_limit_too() -> None:
    remote = RemoteInterest(noted, bytes_max=100_000)
    for number in range(10):
        remote.accept(InterestUpdate(f"b{number}", 1, 1, -1, [LONG, "x"], []))
    assert len(remote.needing(LONG)) == 4
    remote.forget("b0")
    remote.accept(InterestUpdate("b9", 1, 2, -1, [LONG, "x"], []))
    assert "b9" in remote.needing(LONG)


def test_records_beyond_the_limits_are_left_behind_at_a_start() -> None:
    remote = RemoteInterest(noted, bytes_max=50_000)
    for number in range(10):
        remote.restore(f"b{number}\0{LONG}".encode())
    assert len(remote.needing(LONG)) == 2
    assert [type(effect) for effect in remote.effects] == [Erase] * 8


# Cost: operations are counted, since time depends on the machine.


class Counted(dict[str, None]):
    """Counts how often somebody walks through all of it."""

    walks = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        Counted.walks += 1
        return super().__iter__()


def test_a_change_of_one_of_many_filters_costs_what_it_changes() -> None:
    local, remote = needing(20_000), RemoteInterest(noted)
    local.news()
    for part in parts_of(local):
        remote.accept(part, "n")
    remote.effects.clear()
    local._told, remote._needs["b"].filters = Counted(local._told), Counted(remote._needs["b"].filters)
    Counted.walks = 0
    for number in range(100):
        local.add("s", f"new/{number}")
        local.remove("s", f"f/{number}")
        [change] = local.news()
        assert (len(change.added), len(change.removed)) == (1, 1)
        assert remote.accept(change, "n") == (True, False, [f"new/{number}"])
    assert len(remote.effects) == 200
    assert Counted.walks == 0
    assert remote.everything("b") == local.everything()


def test_filters_that_are_needed_no_more_are_removed_by_and_by() -> None:
    local, remote = needing(10_000), RemoteInterest(noted)
    local.news()
    for part in parts_of(local):
        remote.accept(part, "n")
    remote.effects.clear()
    remote.forget("b", SECOND)
    assert remote.needing("f/9") == ()
    steps = [len(remote.effects)]
    while remote.sweep_at < 2 * SECOND:
        before = len(remote.effects)
        remote.sweep(remote.sweep_at)
        steps.append(len(remote.effects) - before)
    assert sum(steps) == 10_000
    assert max(steps) <= interest_module.SWEPT_AT_ONCE
    assert len(remote._trie) == 0


def test_a_broker_that_comes_again_while_it_is_swept_needs_what_it_says() -> None:
    local, remote = needing(5_000), RemoteInterest(noted)
    local.news()
    for part in parts_of(local):
        remote.accept(part, "n")
    remote.forget("b", SECOND)
    again = InterestUpdate("b", 2, 1, 0, ["f/1", "f/4999", "g"], [])
    assert remote.accept(again, "n", SECOND) == (True, False, ["f/1", "f/4999", "g"])
    while remote.sweep_at < 2 * SECOND:
        remote.sweep(remote.sweep_at)
    assert [remote.needing(topic) for topic in ("f/1", "f/2", "f/4999", "g")] == [("b",), (), ("b",), ("b",)]
    assert len(remote._trie) == 3


# Whatever happens in between

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add", "remove"]), st.sampled_from("stuvwxyz")),
        st.tuples(st.sampled_from(["tell", "part", "hear", "want", "cut", "restart", "late"]), st.just("")),
    ),
    max_size=80,
)


class Line:
    """One neighbour tells another of its needs over a line that keeps the order and may be cut."""

    def __init__(self) -> None:
        self.life, self.now = 1, 0
        self.local, self.remote = LocalInterest("b", 1, noted), RemoteInterest(noted)
        self.transfers = InterestTransfers()
        self.in_flight: deque[InterestUpdate] = deque()

    def tell(self) -> None:
        for change in self.local.news():
            if not self.transfers.is_waiting("b"):
                self.in_flight.append(change)

    def part(self) -> None:
        self.tell()
        if (made := self.transfers.next_part(lambda _: self.local.whole())) is not None:
            self.in_flight.append(made)

    def hear(self) -> None:
        if self.in_flight and self.remote.accept(self.in_flight.popleft(), "n", self.now)[1]:
            self.want()

    def want(self) -> None:
        self.transfers.want("b")

    def late(self) -> None:
        self.now += ASK_AGAIN

    def cut(self) -> None:
        self.in_flight.clear()
        self.remote.lost("n")
        self.transfers = InterestTransfers()
        if self.remote.version_of("b") < self.local.whole()[:2]:
            self.want()

    def restart(self) -> None:
        self.life += 1
        held = list(self.local._holders)
        self.local = LocalInterest("b", self.life, noted)
        for topic_filter in held[::2]:
            self.local.add("s", topic_filter)
        self.cut()

    def settle(self) -> None:
        for _ in range(100):
            self.part()
            self.hear()


@settings(deadline=None)
@given(STEPS)
def test_whatever_changes_while_a_set_is_told_both_sides_agree_in_the_end(steps: list[tuple[str, str]]) -> None:
    line = Line()
    for action, letter in steps:
        line.now += SECOND // 10
        match action:
            case "add":
                line.local.add("s", LONG + letter)
            case "remove":
                line.local.remove("s", LONG + letter)
            case _:
                getattr(line, action)()
    line.settle()
    line.cut()
    line.settle()
    assert line.remote.everything("b") == line.local.everything()
    assert sorted(line.remote._trie.filters()) == sorted(line.local._holders)


# In a broker


def test_hundreds_of_filters_as_long_as_can_be_reach_all_and_links_hold() -> None:
    net = Overlay({"a-b": 10, "b-c": 10})
    for number in range(600):
        net.brokers["a"].handle(Subscribe("s", f"{number}/".ljust(65_000, "x")), net.now)
    net.turn("a", [])
    net.run(3_000)
    assert len(net.digests()) == 1
    assert not any(net.of(name, Close) for name in "abc")
    net.cut("a", "b")
    net.crash("b")
    net.restart("b")
    net.run(5_000)
    assert len(net.digests()) == 1
    assert not any(net.of(name, Close) for name in "abc")


def test_a_link_that_is_lost_while_a_set_is_told_is_made_good_by_another() -> None:
    net = Overlay({"a-b": 10, "a-c": 10, "b-d": 10, "c-d": 10})
    net.run(1_000)
    for number in range(200):
        net.brokers["a"].handle(Subscribe("s", f"{number}/{LONG}"), net.now)
    net.turn("a", [])
    net.run(25)
    net.cut("b", "d")
    net.run(8_000)
    assert len({net.brokers[name].map_digest() for name in "abcd"}) == 1


def test_all_filters_of_a_broker_that_starts_are_told_in_one_go() -> None:
    """They must not be gone through one by one: a broker that starts may have hundreds of thousands."""
    steps = [steps_to_tell(count) for count in (20_000, 200_000)]
    assert steps[1] < steps[0] + 20


def steps_to_tell(count: int) -> int:
    local = LocalInterest("b", 1, lambda: None)
    for number in range(count):
        local.add("s", f"site/{number}")
    steps = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return trace

    sys.settrace(trace)
    try:
        local.news()
    finally:
        sys.settrace(None)
    return steps
