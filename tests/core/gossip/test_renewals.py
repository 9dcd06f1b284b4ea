"""Filters that nobody needed for a while: routing brokers treat them as new, and hand out what is retained.

An edge drops what was retained for a filter when its last subscriber leaves. A routing broker that has not heard of
that, since there was no connection, must not take the filter of the next subscriber for the one that it knows.
"""

from collections.abc import Callable

import pytest

from overlane.core.bundles import BUNDLES, as_mask, encode_mask, group_of
from overlane.core.events import Effect, InterestChanged, Save
from overlane.core.gossip.edge_scope import PERIOD, EdgeScope
from overlane.core.gossip.interest import TABLE, RemoteInterest
from overlane.core.gossip.routing_scope import RoutingScope
from overlane.core.wire.control_messages import ControlMessage, PublishScope, ScopeComplete, ScopedInterest

TO_R1 = dict.fromkeys(range(BUNDLES), "r1")
ALL = encode_mask(as_mask(range(BUNDLES)))


def told(next_message: Callable[[str], ControlMessage | None], peer: str) -> list[ControlMessage]:
    """Of filters, everything that there is to tell."""
    found: list[ControlMessage] = []
    while (message := next_message(peer)) is not None:
        if isinstance(message, ScopedInterest):
            found.append(message)
    return found


def first(scope: EdgeScope, topic_filter: str) -> None:
    """A subscriber comes, and there was none."""
    scope.need(topic_filter, True)
    scope.renew(topic_filter)


def last(scope: EdgeScope, topic_filter: str) -> None:
    """A subscriber goes, and there is none."""
    scope.need(topic_filter, False)


def connect(scope: EdgeScope) -> list[ControlMessage]:
    scope.disconnected("r1")
    scope.connected("r1")
    return told(scope.next_message, "r1")


def edge(*restored: str) -> EdgeScope:
    """It needs these filters since an earlier run."""
    scope = EdgeScope("e1", RemoteInterest(lambda: None), lambda _: None, lambda: None)
    scope.assign(TO_R1, 0)
    for topic_filter in restored:
        scope.need(topic_filter, True)
    scope.tick(0)
    return scope


def plain(*filters: str) -> ScopedInterest:
    return ScopedInterest("e1", ALL, list(filters), [])


def renewed(*filters: str) -> ScopedInterest:
    return ScopedInterest("e1", ALL, list(filters), [], True)


def test_a_filter_that_nobody_needed_while_there_was_no_connection_is_told_as_renewed() -> None:
    scope = edge("a/b", "a/c")
    assert connect(scope) == [plain("a/b", "a/c")]
    scope.disconnected("r1")
    last(scope, "a/b")
    first(scope, "a/b")
    found = connect(scope)
    assert plain("a/c") in found
    assert renewed("a/b") in found
    assert len(found) == 2


def test_a_filter_is_told_as_renewed_until_a_connection_was_there_a_period_later() -> None:
    scope = edge()
    first(scope, "a/b")
    assert connect(scope) == [renewed("a/b")]
    assert connect(scope) == [renewed("a/b")]  # that may not have arrived
    scope.tick(PERIOD)
    assert connect(scope) == [renewed("a/b")]
    scope.tick(2 * PERIOD)
    scope.tick(3 * PERIOD)
    assert connect(scope) == [plain("a/b")]


def test_one_connection_tells_nothing_of_another() -> None:
    scope = edge()
    first(scope, "a/b")
    connect(scope)
    scope.tick(PERIOD)
    connect(scope)
    scope.tick(2 * PERIOD)
    assert connect(scope) == [renewed("a/b")]


def test_a_filter_that_comes_anew_before_its_end_was_told_is_told_again() -> None:
    scope = edge()
    first(scope, "a/b")
    connect(scope)
    last(scope, "a/b")
    first(scope, "a/b")
    assert told(scope.next_message, "r1") == [renewed("a/b")]
    scope.renew("a/b")  # within one turn nobody hears that it was needed no more
    assert told(scope.next_message, "r1") == [renewed("a/b")]
    assert told(scope.next_message, "r1") == []


def test_a_filter_that_is_needed_no_more_is_forgotten() -> None:
    scope = edge()
    connect(scope)
    scope.renew("a/b")  # and it ends within the same turn
    assert told(scope.next_message, "r1") == []
    scope.tick(PERIOD)
    scope.need("a/b", True)  # for something that is not retained
    assert told(scope.next_message, "r1") == [plain("a/b")]


def router() -> tuple[RoutingScope, RemoteInterest]:
    """It was told a filter of e1 over an earlier connection, on which e2 publishes; no news are left."""
    remote = RemoteInterest(lambda: None)
    remote.reports_all = True
    scope = RoutingScope("r1", remote, lambda _: None, lambda *_: None)
    scope.configure(TO_R1, ("e1", "e2"), 0)
    for name, filters in (("e1", ["a/b"]), ("e2", [])):
        scope.connected(name)
        scope.hear(name, ScopedInterest(name, ALL, filters, []), 0)
        scope.hear(name, ScopeComplete(0, ALL), 0)
    scope.hear("e2", PublishScope(1, [group_of("a/b") or 0], []), 0)
    assert told(scope.next_message, "e2") == [plain("a/b")]
    scope.disconnected("e1")
    scope.connected("e1")
    remote.effects.clear()
    return scope, remote


@pytest.mark.parametrize(
    ("message", "effects"),
    [
        (plain("a/b"), []),
        (renewed("a/b"), [InterestChanged("a/b", "e1", True)]),
        (renewed("a/c"), [InterestChanged("a/c", "e1", True), Save(TABLE, b"e1\0a/c", b"")]),
    ],
    ids=["known", "known and renewed", "new"],
)
def test_a_routing_broker_reports_a_filter_that_is_new_or_renewed_once(
    message: ScopedInterest, effects: list[Effect]
) -> None:
    scope, remote = router()
    scope.hear("e1", message, 0)
    assert remote.effects == effects


def test_a_renewed_filter_is_needed_all_the_time() -> None:
    scope, remote = router()
    scope.hear("e1", renewed("a/b"), 0)
    assert remote.needing("a/b") == ("e1",)
    assert not any(isinstance(one, ScopedInterest) and one.removed for one in told(scope.next_message, "e2"))
    scope.hear("e1", ScopeComplete(0, ALL), 0)
    assert remote.needing("a/b") == ("e1",)
