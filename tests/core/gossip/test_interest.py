"""Interest: only changes travel, and whoever misses one gets everything."""

from hypothesis import given
from hypothesis import strategies as st

from overlane.core.events import Erase, Save
from overlane.core.gossip.interest import RemoteInterest
from overlane.core.gossip.local_interest import LocalInterest
from overlane.core.wire.control_messages import InterestUpdate


def news(sequence: int, base: int, added: str = "", removed: str = "", incarnation: int = 1) -> InterestUpdate:
    return InterestUpdate("b", incarnation, sequence, base, added.split(), removed.split())


def noted() -> None:
    """Whoever must know of a change is told."""


# Here


def test_only_changes_are_told_and_under_growing_numbers() -> None:
    local = LocalInterest("b", 1, noted)
    assert local.news() == []
    local.add("s", "x")
    local.add("s", "y/#")
    assert local.news() == [news(1, 0, "x y/#")]
    assert local.news() == []
    local.remove("s", "x")
    local.add("s", "z")
    assert local.news() == [news(2, 1, "z", "x")]
    assert local.everything() == news(2, -1, "y/# z")


def test_a_filter_is_needed_while_one_subscriber_holds_it() -> None:
    local = LocalInterest("b", 1, noted)
    assert [local.add("s", "x"), local.add("t", "x"), local.add("t", "x")] == [True, True, False]
    local.news()
    assert [local.remove("s", "x"), local.holds("x"), local.news()] == [True, True, []]
    assert [local.remove("t", "x"), local.remove("t", "x"), local.holds("x")] == [True, False, False]
    assert local.news() == [news(2, 1, "", "x")]


def test_what_came_and_went_between_two_tellings_is_not_told() -> None:
    local = LocalInterest("b", 1, noted)
    local.add("s", "x")
    local.remove("s", "x")
    assert local.news() == []


def test_the_subscribers_of_a_topic_are_named_once_each() -> None:
    local = LocalInterest("b", 1, noted)
    for subscriber, topic_filter in (("s", "a/+"), ("s", "a/b"), ("t", "#"), ("u", "c")):
        local.add(subscriber, topic_filter)
    assert sorted(local.subscribers("a/b")) == ["s", "t"]


# Elsewhere


def test_a_change_is_taken_on_top_of_the_one_before_it() -> None:
    remote = RemoteInterest(noted)
    assert remote.accept(news(1, 0, "x y")) == (True, False, ["x", "y"])
    assert remote.accept(news(2, 1, "z", "x")) == (True, False, ["z"])
    assert remote.everything("b") == news(2, -1, "y z")
    assert [remote.needing(topic) for topic in "xyz"] == [(), ("b",), ("b",)]


def test_a_change_that_is_known_is_no_news() -> None:
    remote = RemoteInterest(noted)
    remote.accept(news(1, 0, "x"))
    assert [remote.accept(news(1, 0, "x")), remote.accept(news(1, -1, "q"))] == [(False, False, [])] * 2
    assert remote.needing("q") == ()


def test_who_must_know_is_told_of_real_changes_only() -> None:
    told: list[str] = []
    remote, local = RemoteInterest(lambda: told.append("remote")), LocalInterest("b", 1, lambda: told.append("local"))
    for message in (news(1, 0, "x"), news(2, 1, "x"), news(2, 1, "y"), news(3, 2, "", "x")):
        remote.accept(message)
    for subscriber in ("s", "s", "t"):
        local.add(subscriber, "x")
    local.remove("u", "x")
    assert told == ["remote", "remote", "local", "local"]


def test_a_change_after_a_gap_is_not_taken_but_asked_for() -> None:
    remote = RemoteInterest(noted)
    remote.accept(news(1, 0, "x"))
    assert remote.accept(news(3, 2, "z")) == (False, True, [])
    assert remote.everything("b") == news(1, -1, "x")


def test_a_full_set_fills_any_gap() -> None:
    remote = RemoteInterest(noted)
    remote.accept(news(1, 0, "x y"))
    assert remote.accept(news(9, -1, "y z")) == (True, False, ["z"])
    assert remote.everything("b") == news(9, -1, "y z")
    assert remote.accept(news(10, 9, "", "y")) == (True, False, [])


def test_a_restarted_broker_begins_anew() -> None:
    remote = RemoteInterest(noted)
    remote.accept(news(7, -1, "x y"))
    assert remote.accept(news(1, 0, "y z", incarnation=2)) == (True, False, ["z"])
    assert remote.everything("b") == news(1, -1, "y z", incarnation=2)
    assert remote.accept(news(8, 7, "q")) == (False, False, [])


def test_a_later_change_of_a_new_life_is_a_gap() -> None:
    remote = RemoteInterest(noted)
    remote.accept(news(7, -1, "x"))
    assert remote.accept(news(8, 7, "z", incarnation=2)) == (False, True, [])


def test_a_broker_without_needs_after_its_restart_needs_nothing() -> None:
    remote = RemoteInterest(noted)
    remote.accept(news(7, -1, "x"))
    assert remote.accept(news(0, -1, incarnation=2)) == (True, False, [])
    assert remote.needing("x") == ()


def test_a_broker_that_left_is_forgotten_and_no_echo_brings_it_back() -> None:
    remote = RemoteInterest(noted)
    remote.accept(news(3, -1, "x y"))
    remote.forget("b")
    remote.forget("nobody")
    assert (remote.needing("x"), remote.needing("y")) == ((), ())
    assert remote.accept(news(3, -1, "x y")) == (False, False, [])
    assert remote.accept(news(1, 0, "x", incarnation=2)) == (True, False, ["x"])


def test_brokers_that_need_a_topic_come_in_the_order_of_their_names() -> None:
    remote = RemoteInterest(noted)
    for name in ("c", "a", "b"):
        remote.accept(InterestUpdate(name, 1, 1, 0, ["t/#", "t/1"], []))
    assert (remote.needing("t/1"), remote.brokers()) == (("a", "b", "c"), ["a", "b", "c"])


def test_what_others_need_survives_a_restart_until_they_say_otherwise() -> None:
    before = RemoteInterest(noted)
    before.accept(news(1, 0, "x y"))
    before.accept(news(2, 1, "z", "x"))
    store: set[bytes] = set()
    for effect in before.effects:
        match effect:
            case Save(_, key, _):
                store.add(key)
            case Erase(_, key):
                store.discard(key)
            case _:
                raise AssertionError(effect)
    after = RemoteInterest(noted)
    for key in sorted(store):
        after.restore(key)
    assert [after.needing(topic) for topic in "xyz"] == [(), ("b",), ("b",)]
    assert after.accept(news(3, 2, "q")) == (False, True, [])
    assert after.accept(news(3, -1, "q y")) == (True, False, ["q"])
    assert [after.needing(topic) for topic in "qyz"] == [("b",), ("b",), ()]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add", "remove"]), st.sampled_from(["s", "t"]), st.sampled_from("vwxyz")),
        st.tuples(st.sampled_from(["told", "lost", "late", "restart"]), st.just(""), st.just("")),
    ),
    max_size=40,
)


@given(STEPS)
def test_after_any_losses_and_a_full_exchange_on_each_gap_both_tables_agree(steps: list[tuple[str, str, str]]) -> None:
    incarnation = 1
    local, remote = LocalInterest("b", incarnation, noted), RemoteInterest(noted)
    late: list[InterestUpdate] = []
    for action, subscriber, topic_filter in steps:
        match action:
            case "add":
                local.add(subscriber, topic_filter)
            case "remove":
                local.remove(subscriber, topic_filter)
            case "restart":
                incarnation += 1
                local = LocalInterest("b", incarnation, noted)
            case "told" | "lost" | "late":
                told = local.news()
                if action == "told":
                    for message in told:
                        receive(local, remote, message)
                elif action == "late":
                    late += told
    for message in [*reversed(late), local.everything()]:
        receive(local, remote, message)
    assert remote.everything("b") == local.everything()
    local.add("last", "u")
    [change] = local.news()
    receive(local, remote, change)
    assert remote.everything("b") == local.everything()
    assert [bool(remote.needing(topic)) for topic in "uvwxyz"] == [bool(local.subscribers(topic)) for topic in "uvwxyz"]


def receive(local: LocalInterest, remote: RemoteInterest, message: InterestUpdate) -> None:
    _, gap, _ = remote.accept(message)
    if gap:
        remote.accept(local.everything())


def test_levels_of_a_filter_with_wildcards_count_for_what_they_take_in_memory() -> None:
    remote = RemoteInterest(noted, bytes_max=1_000_000)
    deep = "/".join(["a"] * 2_000)
    remote.accept(news(1, 0, f"{deep}/+ {deep}/b/+ {deep}/c {deep}/d"))
    assert remote.refused == 1
    assert (remote.needing(f"{deep}/c"), remote.needing(f"{deep}/b/x")) == (("b",), ())
    remote.forget("b")
    assert remote._bytes == 0
