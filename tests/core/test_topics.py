"""Topics and filters: the rules of MQTT 5, section 4.7, and the trie against matching one filter at a time."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.topics import BadTopic, FilterTrie, check_filter, check_topic, covers, matches, specificity


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "sport/tennis", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("+/tennis/#", "sport/tennis", True),
        ("#", "$SYS/monitor", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/monitor/Clients", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("ACCOUNTS", "Accounts", False),
        ("finance", "/finance", False),
        ("/finance", "finance", False),
        ("a/b", "a/b", True),
        ("a/b/c", "a/b", False),
        ("a", "a/b", False),
    ],
)
def test_matching_follows_the_examples_of_the_standard(topic_filter: str, topic: str, expected: bool) -> None:
    trie: FilterTrie[int] = FilterTrie()
    trie.add(topic_filter, 1)
    assert matches(topic_filter, topic) is expected
    assert trie.match(topic) == ([1] if expected else [])


@pytest.mark.parametrize("good", ["a", "/", "a//b", " ", "$SYS/x", "x" * 65_535, "é/ü"])
def test_a_well_formed_topic_is_also_a_filter(good: str) -> None:
    check_topic(good)
    check_filter(good)


@pytest.mark.parametrize("good", ["#", "+", "+/#", "a/+/b", "/+", "+/", "a/#", "$share/#", "+/+"])
def test_wildcards_may_stand_as_whole_levels_of_a_filter_only(good: str) -> None:
    check_filter(good)
    with pytest.raises(BadTopic, match="only in filters"):
        check_topic(good)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("", "the filter is empty: at least one character is needed"),
        ("a#", "filter 'a#': `#` is allowed only as the whole last level"),
        ("sport/tennis#", "filter 'sport/tennis#': `#` is allowed only as the whole last level"),
        ("sport/tennis/#/ranking", "filter 'sport/tennis/#/ranking': `#` is allowed only as the whole last level"),
        ("##", "filter '##': `#` is allowed only as the whole last level"),
        ("sport+", "filter 'sport+': `+` is allowed only as a whole level"),
        ("a/+b/c", "filter 'a/+b/c': `+` is allowed only as a whole level"),
        ("++", "filter '++': `+` is allowed only as a whole level"),
        ("a\0", "filter 'a\\x00': the character U+0000 is not allowed"),
        ("a\ud800", "filter 'a\\ud800': not valid Unicode at character 1"),
        ("x" * 65_536, f"filter '{'x' * 57}...': 65536 bytes in UTF-8, at most 65535 are allowed"),
    ],
)
def test_a_malformed_filter_is_refused_with_the_reason(bad: str, reason: str) -> None:
    with pytest.raises(BadTopic) as refused:
        check_filter(bad)
    assert str(refused.value) == reason
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize("bad", ["", "a\0", "a\udfff", "é" * 32_768])
def test_a_malformed_topic_is_refused(bad: str) -> None:
    with pytest.raises(BadTopic):
        check_topic(bad)


# Few distinct levels, so that random filters and topics often meet. "" is an empty level.
level = st.sampled_from(["a", "", "$s"])
topics = st.lists(level, min_size=1, max_size=4).map("/".join).filter(bool)
filters = (
    st.tuples(st.lists(st.one_of(level, st.just("+")), max_size=3), st.booleans())
    .map(lambda parts: "/".join([*parts[0], "#"] if parts[1] else parts[0]))
    .filter(bool)
)
pairs = st.tuples(filters, st.integers(0, 3))

EVERY_TOPIC = ["/".join(levels) for depth in range(1, 6) for levels in product(["a", "$s", "z"], repeat=depth)] + [
    "/".join(levels) for depth in range(2, 5) for levels in product(["a", ""], repeat=depth)
]


@given(st.lists(pairs, max_size=20), topics)
def test_the_trie_finds_what_matching_each_filter_finds(entries: list[tuple[str, int]], topic: str) -> None:
    trie: FilterTrie[int] = FilterTrie()
    for topic_filter, value in entries:
        trie.add(topic_filter, value)
    found = trie.match(topic)
    assert sorted(found) == sorted({value for topic_filter, value in entries if matches(topic_filter, topic)})
    assert len(trie) == len(set(entries))


@given(st.lists(st.tuples(st.booleans(), pairs), max_size=40))
def test_adding_and_removing_leaves_the_trie_that_would_have_been_built_at_once(
    steps: list[tuple[bool, tuple[str, int]]],
) -> None:
    trie: FilterTrie[int] = FilterTrie()
    held: dict[tuple[str, int], None] = {}
    for is_add, pair in steps:
        if is_add:
            assert trie.add(*pair) is (pair not in held)
            held.setdefault(pair)
        else:
            assert trie.remove(*pair) is (pair in held)
            held.pop(pair, None)
    at_once: FilterTrie[int] = FilterTrie()
    for pair in held:
        at_once.add(*pair)
    assert _shape(trie) == _shape(at_once)
    assert len(trie) == len(held)
    for topic_filter, _ in held:
        assert trie.values_of(topic_filter) == at_once.values_of(topic_filter)
        assert topic_filter in trie
    for _, (topic_filter, value) in steps:
        trie.remove(topic_filter, value)
    assert _shape(trie) == _shape(FilterTrie())


def _shape(trie: FilterTrie[int]) -> object:
    def tree(node: object) -> object:
        children = getattr(node, "children", None) or {}
        plus = getattr(node, "plus", None)
        return (
            {name: tree(child) for name, child in children.items()},
            tree(plus) if plus is not None else None,
            getattr(node, "here", None),
            getattr(node, "below", None),
        )

    return tree(trie._root), {name: list(values) for name, values in trie._values.items()}


@given(filters, filters)
def test_one_filter_covers_another_if_it_matches_all_its_topics(wide: str, narrow: str) -> None:
    by_example = all(matches(wide, topic) for topic in EVERY_TOPIC if matches(narrow, topic))
    if covers(wide, narrow):
        assert by_example
    elif "" not in narrow.split("/") and "" not in wide.split("/"):
        assert not by_example


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("#", "a/b", True),
        ("#", "$SYS/b", False),
        ("+/#", "#", True),
        ("a/+/#", "a/#", False),
        ("a/#", "a", True),
        ("a/#", "a/+/#", True),
        ("a/+", "a/#", False),
        ("a/+", "a/b", True),
        ("a/b", "a/+", False),
        ("$SYS/#", "$SYS/+/x", True),
    ],
)
def test_covering(wide: str, narrow: str, expected: bool) -> None:
    assert covers(wide, narrow) is expected


def test_the_filter_that_says_more_at_the_first_difference_is_more_specific() -> None:
    rising = ["#", "+/#", "+", "a/#", "a", "a/+/#", "a/+", "a/+/c", "a/b/#", "a/b", "a/b/+", "a/b/c"]
    assert all(specificity(low) < specificity(high) for low, high in pairwise(rising))


@given(topics, filters, filters)
def test_no_two_filters_of_a_topic_are_equally_specific(topic: str, one: str, other: str) -> None:
    if one != other and matches(one, topic) and matches(other, topic):
        assert specificity(one) != specificity(other)


def test_values_come_in_the_order_of_the_walk_and_then_of_arrival() -> None:
    trie: FilterTrie[str] = FilterTrie()
    for topic_filter, value in [("+/b", "y"), ("a/#", "x"), ("a/b", "w"), ("a/b", "v"), ("#", "w"), ("a/+", "z")]:
        trie.add(topic_filter, value)
    assert trie.match("a/b") == ["w", "v", "x", "z", "y"]
    assert list(trie.filters()) == ["+/b", "a/#", "a/b", "#", "a/+"]


def test_a_topic_of_the_greatest_depth_is_matched_without_recursion() -> None:
    trie: FilterTrie[int] = FilterTrie()
    deep = "/" * 65_535
    trie.add("+/" * 32_767 + "#", 1)
    trie.add(deep, 2)
    assert trie.match(deep) == [2, 1]
    assert trie.remove("+/" * 32_767 + "#", 1)
    assert trie.match(deep) == [2]
