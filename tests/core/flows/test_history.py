"""History: what is kept for those who come late, and for how long."""

from hypothesis import given
from hypothesis import strategies as st

from overlane.core.events import Effect, Erase, Save
from overlane.core.flows.history import NAMES_REMEMBERED, Kept, TopicHistory, unwrap, wrap
from overlane.core.qos import HISTORY_ALL, QosClass
from overlane.core.units import NEVER, SECOND, Nanos

ME, OTHER = 3, 4
NOW = 20 * SECOND


def kept(number: int, qos: QosClass, topic: str = "t", origin: int = ME, at: Nanos = NOW) -> Kept:
    return Kept((origin, 1, 1, number, 0), topic, 0, b"%d" % number, qos, at)


def bodies(history: TopicHistory, topic_filter: str = "#", own_only: bool = False, now: Nanos = NOW) -> list[bytes]:
    return [one.body for one in history.matching(topic_filter, own_only, now)]


@given(st.integers(1, 5), st.lists(st.sampled_from("tuv"), max_size=30))
def test_of_each_topic_the_last_n_are_kept(n: int, topics: list[str]) -> None:
    history = TopicHistory(ME)
    for number, topic in enumerate(topics):
        history.keep(kept(number, QosClass(history=n), topic), NOW)
    for topic in "tuv":
        expected = [b"%d" % number for number, one in enumerate(topics) if one == topic][-n:]
        assert bodies(history, topic) == expected


def test_all_within_their_lifespan_are_kept_where_all_are_asked_for() -> None:
    history, qos = TopicHistory(ME), QosClass(history=HISTORY_ALL, lifespan_ns=10 * SECOND)
    for number in range(30):
        history.keep(kept(number, qos, at=NOW + number * SECOND), NOW + number * SECOND)
    assert bodies(history, now=NOW + 29 * SECOND) == [b"%d" % number for number in range(20, 30)]
    assert bodies(history, now=NOW + 35 * SECOND) == [b"%d" % number for number in range(26, 30)]
    assert bodies(history, now=NOW + 39 * SECOND) == []


def test_what_is_out_of_its_lifespan_is_not_given_to_anybody_even_among_the_last() -> None:
    history, qos = TopicHistory(ME), QosClass(history=5, lifespan_ns=10 * SECOND)
    history.keep(kept(1, qos), NOW)
    assert (bodies(history, now=NOW + 10 * SECOND - 1), bodies(history, now=NOW + 10 * SECOND)) == ([b"1"], [])


def test_filters_choose_topics_and_own_messages_can_be_had_alone() -> None:
    history, qos = TopicHistory(ME), QosClass(history=2, lifespan_ns=NEVER)
    history.keep(kept(1, qos, "a/b"), NOW)
    history.keep(kept(2, qos, "a/c", OTHER), NOW)
    history.keep(kept(3, qos, "d"), NOW)
    assert (bodies(history, "a/+"), bodies(history, "#", own_only=True)) == ([b"1", b"2"], [b"1", b"3"])


def test_own_messages_alone_are_durable_and_go_from_the_store_when_they_are_displaced() -> None:
    history, qos = TopicHistory(ME), QosClass(history=1)
    store: dict[bytes, bytes] = {}
    effects: list[Effect] = []
    for one in (kept(1, qos), kept(2, qos), kept(3, qos, "u"), kept(4, qos, "v", OTHER)):
        effects += history.keep(one, NOW)
    for effect in effects:
        match effect:
            case Save(_, key, value):
                store[key] = value
            case Erase(_, key):
                del store[key]
            case _:
                raise AssertionError(effect)
    again = TopicHistory(ME)
    for value in store.values():
        again.restore(value, qos)
    assert sorted(map(TopicHistory.topic_of, store.values())) == ["t", "u"]
    assert list(again.matching("#", own_only=True, now=NOW)) == list(history.matching("#", own_only=True, now=NOW))


def test_a_message_is_known_by_its_name_even_when_it_is_kept_no_longer() -> None:
    history, qos = TopicHistory(ME), QosClass(history=1)
    for number in (1, 2):
        history.keep(kept(number, qos, origin=OTHER), NOW)
    assert [history.knows((OTHER, 1, 1, number, 0)) for number in (1, 2, 3)] == [True, True, False]
    assert not history.knows((ME, 1, 1, 1, 0))


def test_names_are_remembered_within_a_limit() -> None:
    history, qos = TopicHistory(ME), QosClass(history=1)
    for number in range(NAMES_REMEMBERED + 1):
        history.keep(kept(number, qos), NOW)
    assert [history.knows((ME, 1, 1, number, 0)) for number in (0, 1, NAMES_REMEMBERED)] == [False, True, True]


@given(st.tuples(*[st.integers(0, 0xFFFFFFFF)] * 4), st.binary(max_size=20))
def test_a_replayed_message_carries_its_name(name: tuple[int, int, int, int], body: bytes) -> None:
    one = Kept((ME, *name), "t", 0, body, QosClass(), NOW)
    assert unwrap(ME, wrap(one)) == (one.name, body)
