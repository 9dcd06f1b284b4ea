"""What an edge and a routing broker tell each other, message by message."""

from collections.abc import Callable

import pytest

from overlane.core.bundles import BUNDLES, as_mask, bundle_of, encode_mask, group_of
from overlane.core.events import Erase, HeldMessageSent, PublishResult, Save, ScopeChanged, ScopeDigest
from overlane.core.flows.held_messages import HELD_BYTES_MAX, ROUTE_WAIT, HeldMessage, HeldMessages
from overlane.core.gossip.edge_scope import DIGEST_GAP, IDLE_PERIODS, NEW_FOR, PERIOD, EdgeScope
from overlane.core.gossip.interest import RemoteInterest
from overlane.core.gossip.routing_scope import GATHER_MAX, GATHER_UNKNOWN_MAX, RoutingScope
from overlane.core.limits import TOPIC_BYTES_MAX
from overlane.core.qos import QosClass
from overlane.core.routing.forwarding.message_losses import MessageLosses
from overlane.core.units import NEVER
from overlane.core.wire.control_messages import (
    ControlMessage,
    PublishScope,
    ScopeComplete,
    ScopedInterest,
    decode,
    encode,
)
from overlane.errors import ProtocolViolation

TO_R1, TO_R2 = (dict.fromkeys(range(BUNDLES), name) for name in ("r1", "r2"))
ALL = encode_mask(as_mask(range(BUNDLES)))


def edge(assignment: dict[int, str] = TO_R1) -> tuple[EdgeScope, RemoteInterest]:
    remote = RemoteInterest(lambda: None)
    scope = EdgeScope("e1", remote, lambda _: None, lambda: None)
    scope.assign(assignment, 0)
    return scope, remote


def router(*expected: str) -> tuple[RoutingScope, list[tuple[str, str]]]:
    partners: list[tuple[str, str]] = []
    scope = RoutingScope("r1", RemoteInterest(lambda: None), lambda _: None, lambda *pair: partners.append(pair))
    scope.configure(TO_R1, expected, 0)
    return scope, partners


def said(next_message: Callable[[str], ControlMessage | None], peer: str) -> list[ControlMessage]:
    """Everything that there is to tell; each message as its receiver reads it."""
    found: list[ControlMessage] = []
    while (message := next_message(peer)) is not None:
        assert decode(memoryview(encode(message))) == message
        found.append(message)
    return found


def test_an_edge_tells_its_groups_then_its_filters_and_then_that_this_was_all() -> None:
    scope, _ = edge()
    scope.need("plant/line1/#", True)
    scope.need("#", True)
    scope.need("$retained/#", True)
    assert scope.must_wait("plant/line2/x")
    scope.connected("r1")
    assert said(scope.next_message, "r1") == [
        PublishScope(1, [group_of("plant/line2/x") or 0], []),
        ScopedInterest("e1", ALL, ["#", "plant/line1/#"], []),
        ScopeComplete(0, ALL),
    ]
    assert said(scope.next_message, "r2") == []


def test_a_group_is_ready_when_its_carrier_has_told_everything() -> None:
    scope, _ = edge()
    scope.connected("r1")
    assert scope.must_wait("a/b/c")
    said(scope.next_message, "r1")
    scope.hear("r1", ScopeComplete(0, ALL), 0)  # it has not heard of the group yet
    assert scope.must_wait("a/b/c")
    scope.hear("r1", ScopeComplete(1, b""), 0)  # nor gathered its bundle
    assert scope.must_wait("a/b/c")
    scope.hear("r1", ScopeComplete(1, ALL), 0)
    assert not scope.must_wait("a/b/c")
    assert scope.must_wait("a/x")


def test_a_group_ends_after_minutes_without_a_message() -> None:
    scope, _ = edge()
    scope.connected("r1")
    scope.must_wait("a/b")
    said(scope.next_message, "r1")
    scope.hear("r1", ScopeComplete(1, ALL), 0)
    scope.tick(0)
    for number in range(1, IDLE_PERIODS + 1):
        assert scope.size()["groups"] == 1
        scope.tick(number * PERIOD)
    assert scope.size()["groups"] == 0
    assert said(scope.next_message, "r1") == [PublishScope(2, [], [group_of("a/b") or 0])]


def test_what_a_former_carrier_has_told_counts_until_the_new_one_has_that_brokers_word() -> None:
    scope, remote = edge()
    scope.connected("r1")
    scope.connected("r2")
    scope.must_wait("a/b")
    said(scope.next_message, "r1")
    scope.hear("r1", ScopedInterest("e2", ALL, ["a/b"], []), 0)
    scope.hear("r1", ScopeComplete(1, ALL), 0)
    scope.assign(TO_R2, 0)
    said(scope.next_message, "r1")
    scope.hear("r1", ScopedInterest("e2", b"", [], ["a/b"]), 0)
    told = said(scope.next_message, "r2")
    assert told[0] == PublishScope(1, [group_of("a/b") or 0], [], ["e2"])
    scope.hear("r2", ScopeComplete(1, ALL), 0)
    assert remote.needing("a/b") == ("e2",)  # of which the new carrier has heard nothing
    scope.hear("r2", ScopedInterest("e2", ALL, [], []), 0)
    scope.hear("r2", ScopeComplete(1, ALL), 0)
    assert remote.needing("a/b") == ()


def test_a_broker_is_new_for_a_moment_after_something_was_told_of_its_needs() -> None:
    scope, _ = edge()
    scope.tick(0)
    scope.connected("r1")
    scope.hear("r1", ScopedInterest("e2", b"", ["a/b"], []), 5)
    scope.hear("r1", ScopedInterest("e3", b"", ["a/b"], []), 6)
    scope.hear("r1", ScopedInterest("e2", b"", ["a/c"], []), 7)
    assert scope.newcomers == {"e3": 6 + NEW_FOR, "e2": 7 + NEW_FOR}
    assert scope.next_deadline() == 6 + NEW_FOR
    scope.hear("r1", ScopedInterest("e3", b"", ["a/b"], []), 8)  # nothing that was not known
    scope.tick(6 + NEW_FOR)
    assert list(scope.newcomers) == ["e2"]
    scope.tick(7 + NEW_FOR)
    assert not scope.newcomers
    assert scope.next_deadline() == PERIOD


def test_the_digest_tells_the_bundles_that_are_used_and_not_too_often() -> None:
    scope, _ = edge({})
    scope.need("a/b", True)
    scope.must_wait("c/d")
    digest = ScopeDigest(frozenset({bundle_of("c/d") or 0}), frozenset({bundle_of("a/b") or 0}))
    assert scope.tick(0) == [ScopeChanged(digest)]
    scope.need("#", True)
    assert scope.tick(1) == []
    assert scope.next_deadline() == DIGEST_GAP
    assert [one.digest.subscribed for one in scope.tick(DIGEST_GAP) if isinstance(one, ScopeChanged)] == [
        frozenset(range(BUNDLES))
    ]


def test_a_routing_broker_tells_an_edge_what_can_match_its_groups_and_no_more() -> None:
    scope, partners = router("e1", "e2", "e3")
    for name, filters in (("e1", []), ("e2", ["a/b", "x/y"]), ("e3", ["#"])):
        scope.connected(name)
        scope.hear(name, ScopedInterest(name, ALL, filters, []), 0)
        scope.hear(name, ScopeComplete(0, ALL), 0)
    scope.hear("e1", PublishScope(1, [group_of("a/b") or 0], []), 0)
    assert said(scope.next_message, "e1") == [
        ScopedInterest("e2", ALL, ["a/b"], []),
        ScopedInterest("e3", ALL, ["#"], []),
        ScopeComplete(1, ALL),
    ]
    assert said(scope.next_message, "e2") == []
    assert sorted(partners) == [("e1", "e2"), ("e1", "e3"), ("e2", "e1"), ("e3", "e1")]
    scope.hear("e2", ScopedInterest("e2", ALL, ["a/b/c"], ["a/b"]), 0)
    assert said(scope.next_message, "e1") == [ScopedInterest("e2", ALL, ["a/b/c"], ["a/b"])]


def test_nothing_is_complete_before_every_edge_has_told_what_it_needs() -> None:
    scope, _ = router("e1", "e2")
    scope.connected("e1")
    scope.hear("e1", PublishScope(1, [group_of("a/b") or 0], []), 0)
    scope.hear("e1", ScopedInterest("e1", ALL, [], []), 0)
    scope.hear("e1", ScopeComplete(0, ALL), 0)
    assert said(scope.next_message, "e1") == [ScopeComplete(1, b"")]
    assert scope.next_deadline() == GATHER_UNKNOWN_MAX
    scope.tick(GATHER_UNKNOWN_MAX)  # nothing is known that the other one needs: it is not waited for any longer
    assert said(scope.next_message, "e1") == [ScopeComplete(1, ALL)]


def test_an_edge_that_is_known_to_need_something_is_waited_for_longer() -> None:
    scope, _ = router("e1", "e2")
    for name in ("e1", "e2"):
        scope.connected(name)
    scope.hear("e1", PublishScope(1, [group_of("a/b") or 0], []), 0)
    scope.hear("e1", ScopedInterest("e1", ALL, [], []), 0)
    scope.hear("e1", ScopeComplete(0, ALL), 0)
    scope.hear("e2", ScopedInterest("e2", ALL, ["a/b"], []), 0)
    scope.disconnected("e2")
    scope.tick(GATHER_UNKNOWN_MAX)
    assert ScopeComplete(1, b"") in said(scope.next_message, "e1")
    assert scope.next_deadline() == GATHER_MAX
    scope.tick(GATHER_MAX)
    assert said(scope.next_message, "e1") == [ScopeComplete(1, ALL)]


def test_what_an_edge_tells_elsewhere_from_now_on_is_not_complete_here_any_more() -> None:
    """It has heard of a move of which this broker has not: a publisher that has not either must not rely on it."""
    scope, _ = router("e1", "e2")
    for name in ("e1", "e2"):
        scope.connected(name)
        scope.hear(name, ScopedInterest(name, ALL, ["a/b"] if name == "e2" else [], []), 0)
        scope.hear(name, ScopeComplete(0, ALL), 0)
    scope.hear("e2", ScopedInterest("e2", b"", [], ["a/b"]), 7)
    scope.hear("e2", ScopeComplete(0, b""), 7)
    scope.hear("e1", PublishScope(1, [group_of("a/b") or 0], []), 8)
    assert said(scope.next_message, "e1")[-1] == ScopeComplete(1, b"")
    assert scope.next_deadline() == 7 + GATHER_MAX
    scope.hear("e2", ScopedInterest("e2", ALL, ["a/b"], []), 9)  # the bundle has come back
    scope.hear("e2", ScopeComplete(0, ALL), 9)
    assert said(scope.next_message, "e1") == [ScopedInterest("e2", ALL, ["a/b"], []), ScopeComplete(1, ALL)]


# Standbys


def test_the_standby_of_a_bundle_is_told_the_same_as_its_carrier() -> None:
    scope, _ = edge()
    scope.assign(TO_R1, 0, TO_R2)
    scope.need("plant/line1/#", True)
    scope.need("#", True)
    scope.must_wait("plant/line2/x")
    for name in ("r1", "r2"):
        scope.connected(name)
    told = said(scope.next_message, "r1")
    assert len(told) == 3
    assert said(scope.next_message, "r2") == told
    scope.need("a/b", True)
    assert said(scope.next_message, "r2") == said(scope.next_message, "r1") == [ScopedInterest("e1", ALL, ["a/b"], [])]


def test_a_group_is_ready_when_the_standby_has_told_everything_of_it() -> None:
    scope, _ = edge()
    scope.assign(TO_R1, 0, TO_R2)
    scope.connected("r2")  # the carrier is not reached
    assert scope.must_wait("a/b/c")
    said(scope.next_message, "r2")
    scope.hear("r2", ScopeComplete(1, ALL), 0)
    assert not scope.must_wait("a/b/c")


def test_nothing_is_told_anew_when_the_standby_becomes_the_carrier() -> None:
    scope, remote = edge()
    scope.assign(TO_R1, 0, TO_R2)
    scope.must_wait("a/b")
    for name in ("r1", "r2"):
        scope.connected(name)
        said(scope.next_message, name)
        scope.hear(name, ScopedInterest("e2", ALL, ["a/b"], []), 0)
        scope.hear(name, ScopeComplete(1, ALL), 0)
    scope.disconnected("r1")
    scope.assign(TO_R2, 0)
    assert said(scope.next_message, "r2") == []
    assert remote.needing("a/b") == ("e2",)
    assert scope.size()["doubtful_filters"] == 0


def test_a_standby_that_is_none_any_more_is_told_so() -> None:
    scope, _ = edge()
    scope.assign(TO_R1, 0, TO_R2)
    scope.need("a/b", True)
    scope.must_wait("c/d")
    scope.connected("r2")
    said(scope.next_message, "r2")
    scope.assign(TO_R1, 0)
    assert said(scope.next_message, "r2") == [
        PublishScope(2, [], [group_of("c/d") or 0]),
        ScopedInterest("e1", b"", [], ["a/b"]),
        ScopeComplete(0, b""),
    ]


def test_a_routing_broker_gathers_what_it_stands_by_for() -> None:
    scope, _ = router()
    scope.configure(TO_R2, ("e1",), 0, TO_R1)
    scope.connected("e1")
    scope.hear("e1", ScopedInterest("e1", ALL, ["a/b"], []), 0)
    scope.hear("e1", ScopeComplete(0, ALL), 0)
    scope.hear("e1", PublishScope(1, [group_of("a/b") or 0], []), 0)
    assert said(scope.next_message, "e1") == [ScopeComplete(1, ALL)]
    scope.configure(TO_R1, ("e1",), 1)
    assert said(scope.next_message, "e1") == []


def test_an_edge_speaks_for_itself_alone() -> None:
    scope, _ = router("e1")
    scope.connected("e1")
    with pytest.raises(ProtocolViolation):
        scope.hear("e1", ScopedInterest("e2", ALL, ["#"], []), 0)


def test_a_connection_begins_anew_and_nothing_seems_to_be_needed_less() -> None:
    scope, _ = router("e1", "e2")
    for name in ("e1", "e2"):
        scope.connected(name)
        scope.hear(name, ScopedInterest(name, ALL, ["a/b", "a/c"] if name == "e2" else [], []), 0)
        scope.hear(name, ScopeComplete(0, ALL), 0)
    scope.hear("e1", PublishScope(1, [group_of("a/b") or 0, group_of("a/c") or 0], []), 0)
    said(scope.next_message, "e1")
    scope.disconnected("e2")
    scope.connected("e2")
    scope.hear("e2", ScopedInterest("e2", ALL, ["a/b"], []), 0)
    assert not any(isinstance(one, ScopedInterest) and one.removed for one in said(scope.next_message, "e1"))
    scope.hear("e2", ScopeComplete(0, ALL), 0)
    assert ScopedInterest("e2", ALL, [], ["a/c"]) in said(scope.next_message, "e1")


@pytest.mark.parametrize("count", [1_023, 1_024, 1_025, 2_049])
def test_all_that_is_told_can_be_read_at_every_limit(count: int) -> None:
    scope, remote = edge()
    for number in range(count):
        scope.need(f"f/{number}", True)
        scope.must_wait(f"g/{number}")
        remote.hold(f"b{number}", "g/1")
    scope.need("l" * TOPIC_BYTES_MAX, True)
    scope.need("ü" * (TOPIC_BYTES_MAX // 2), True)
    scope.doubt_restored(0)
    scope.connected("r1")
    messages = said(scope.next_message, "r1")
    assert sum(len(one.added) for one in messages if isinstance(one, PublishScope)) == count
    assert sum(len(one.asked) for one in messages if isinstance(one, PublishScope)) == count
    assert sum(len(one.added) for one in messages if isinstance(one, ScopedInterest)) == count + 2
    routing, _ = router("e1", "e2")
    routing.connected("e1")
    routing.connected("e2")
    for message in messages:
        assert isinstance(message, (PublishScope, ScopedInterest, ScopeComplete))
        routing.hear("e1", message, 0)
    routing.hear("e2", PublishScope(1, [group_of(f"f/{number}") or 0 for number in range(1_024)], []), 0)
    found = [one for one in said(routing.next_message, "e2") if isinstance(one, ScopedInterest)]
    assert sum(len(one.added) for one in found) == min(count, 1_024)


# Messages that wait

RELIABLE, PLAIN = QosClass(reliable=True), QosClass()


def test_held_messages_are_released_in_order_and_reliable_ones_are_records_until_then() -> None:
    held = HeldMessages(MessageLosses())
    record = held.hold("a/b/1", 0, b"x", RELIABLE, 1_000, 0)
    assert held.hold("a/b/2", 0, b"y", PLAIN, 0, 0) is PublishResult.ACCEPTED
    other = held.hold("c/d", 0, b"z", RELIABLE, 1_000, 0)
    assert isinstance(record, Save)
    assert isinstance(other, Save)
    assert held.hold("a/b/3", 0, bytes(2_000), RELIABLE, 1_000, 0) is PublishResult.BUSY
    sent: list[HeldMessage] = []

    def send(one: HeldMessage, _: bool) -> PublishResult:
        sent.append(one)
        return PublishResult.ACCEPTED

    group = group_of("a/b") or 0
    released = held.release([group], send, 0)
    assert [(one.topic, one.body) for one in sent] == [("a/b/1", b"x"), ("a/b/2", b"y")]
    assert released == [
        HeldMessageSent("a/b/1", 0, b"x", RELIABLE, ()),
        Erase(record.table, record.key),
        HeldMessageSent("a/b/2", 0, b"y", PLAIN, ()),
    ]
    assert len(held) == 1
    again = HeldMessages(MessageLosses())
    again.restore(other.key, other.value)
    assert again.reliable_bytes == held.reliable_bytes > 0
    assert again.topics() == ["c/d"]


def test_best_effort_waits_for_a_path_for_a_limited_time_and_all_behind_it_in_the_group_wait_too() -> None:
    held = HeldMessages(MessageLosses())
    held.hold("a/b/1", 0, b"x", PLAIN, 0, 0)
    held.hold("a/b/2", 0, b"y", RELIABLE, 1_000, 0)
    held.hold("c/d", 0, b"z", RELIABLE, 1_000, 0)
    sent: list[str] = []

    def send(one: HeldMessage, may_wait: bool) -> PublishResult:
        if may_wait and not one.qos.reliable:
            return PublishResult.BUSY
        sent.append(one.topic)
        return PublishResult.ACCEPTED

    assert held.next_deadline() == NEVER
    held.release(held.groups(), send, 5)
    assert sent == ["c/d"]
    assert held.next_deadline() == 5 + ROUTE_WAIT
    held.release(held.groups(), send, 4 + ROUTE_WAIT)
    assert sent == ["c/d"]
    held.release(held.groups(), send, 5 + ROUTE_WAIT)
    assert sent == ["c/d", "a/b/1", "a/b/2"]
    assert (held.is_waiting, held.reliable_bytes, held.next_deadline()) == (False, 0, NEVER)


def test_the_oldest_of_those_that_are_not_reliable_make_room_and_are_counted() -> None:
    losses = MessageLosses()
    held = HeldMessages(losses)
    for number in range(5):
        held.hold(f"a/b/{number}", 0, bytes(HELD_BYTES_MAX // 4), PLAIN, 0, 0)
    assert losses.queue_full == 2
    assert held.topics() == ["a/b/2"]
