"""Topic names: translations, their round trip, and rules that cannot be told apart."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.core.topics import matches
from overlane.topic_names import (
    DIRECTIONS,
    Ambiguity,
    NameRule,
    TopicNames,
    ambiguities,
    are_alike,
    overlaps,
    translated,
)

PARTS = ("a", "b", "")
TOPICS = [
    topic for count in range(1, 5) for levels in product((*PARTS, "$x"), repeat=count) if (topic := "/".join(levels))
]
FILTERS = [
    one
    for count in range(4)
    for levels in product((*PARTS, "+"), repeat=count)
    for end in ((), ("#",))
    if (one := "/".join((*levels, *end)))
]
RULES = [
    *((one, other) for one in ("#", "a/#", "b/#", "a/b/#", "/#") for other in ("#", "a/#", "b/#", "b/a/#")),
    *((one, other) for one in ("+", "+/a", "a/+", "a/b/+", "+/") for other in ("+", "b/+", "+/b", "a/+/b")),
    *((one, other) for one in ("+/+", "+/a/+") for other in ("a/+/+", "+/+", "+/b/+")),
    *((one, other) for one in ("a", "a/b", "b") for other in ("a", "b/b", "c")),
    *((one, other) for one in ("+/#", "a/+/#") for other in ("+/#", "b/+/#", "+/a/#")),
]
rules = st.builds(
    lambda pair, way: NameRule(pair[0], pair[1], way), st.sampled_from(RULES), st.sampled_from(DIRECTIONS)
)


@pytest.mark.parametrize(
    ("source", "target", "topic", "name"),
    [
        ("#", "plant/#", "press/3", "plant/press/3"),
        ("plant/#", "#", "plant/press/3", "press/3"),
        ("plant/#", "#", "plant", None),
        ("a/#", "b/c/#", "a", "b/c"),
        ("a/#", "b/#", "a/", "b/"),
        ("+/alarm", "alarms/plant/+", "press/alarm", "alarms/plant/press"),
        ("+/x/+", "+/+/x", "1/x/2", "1/2/x"),
        ("a", "b", "a", "b"),
        ("a", "b", "a/1", None),
        ("#", "plant/#", "$SYS/load", None),
        ("plant/#", "#", "plant/$SYS/load", None),
        ("$SYS/#", "sys/#", "$SYS/load", "sys/load"),
        ("#", "plant/#", "x" * 65_530, None),
    ],
)
def test_a_rule_puts_the_levels_of_wildcards_into_the_other_filter(
    source: str, target: str, topic: str, name: str | None
) -> None:
    assert translated(topic, source, target) == name


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a/#", "a", True),
        ("a/#", "b/#", False),
        ("+/b", "a/+", True),
        ("+", "a/b", False),
        ("#", "$SYS/#", False),
        ("a/+/#", "a", False),
        ("a/b", "a/b", True),
    ],
)
def test_filters_overlap_if_a_topic_matches_both(one: str, other: str, both: bool) -> None:
    assert overlaps(one, other) is both
    assert overlaps(other, one) is both


def test_filters_overlap_exactly_where_they_have_a_topic_in_common() -> None:
    matched = {one: frozenset(topic for topic in (*TOPICS, "") if matches(one, topic)) for one in FILTERS}
    for one, other in combinations(FILTERS, 2):
        assert overlaps(one, other) is not matched[one].isdisjoint(matched[other]), (one, other)


@examples(100)
@given(st.lists(rules, min_size=1, max_size=4))
def test_no_two_names_become_one_and_each_translates_back(many: list[NameRule]) -> None:
    # Those that can be told apart, as a file may have them.
    chosen: list[NameRule] = []
    for rule in many:
        if not any(ambiguities([*chosen, rule])):
            chosen.append(rule)
    names = TopicNames(chosen)
    inwards = TopicNames([NameRule(one.overlay, one.local) for one in chosen if one.direction != "out"])
    outwards = TopicNames([NameRule(one.local, one.overlay) for one in chosen if one.direction != "in"])
    for there, back in ((names.to_overlay, inwards), (names.to_local, outwards)):
        found = {topic: name for topic in TOPICS if (name := there(topic)) is not None}
        assert len(set(found.values())) == len(found)
        assert {name: back.to_overlay(name) for name in found.values()} == {name: one for one, name in found.items()}


def test_rules_that_cannot_be_told_apart_are_found_by_their_side() -> None:
    many = [
        NameRule("a/#", "x/a/#"),
        NameRule("a/b", "y"),
        NameRule("c/#", "x/#", "out"),
        NameRule("d", "x/d", "in"),
    ]
    assert list(ambiguities(many)) == [Ambiguity(0, 1, "local"), Ambiguity(0, 2, "overlay")]


def test_both_filters_of_a_rule_have_the_same_wildcards() -> None:
    assert are_alike("+/a/#", "b/+/#")
    assert not are_alike("+/a", "a/#")
    assert not are_alike("a", "+")


def test_the_name_of_a_response_is_translated_as_the_response_will_be() -> None:
    names = TopicNames([NameRule("replies/#", "plant/replies/#", "in"), NameRule("requests/#", "plant/asks/#", "out")])
    assert names.to_local("plant/asks/1") == "requests/1"
    assert names.reply_to_local("plant/replies/7") == "replies/7"
    assert names.reply_to_overlay("requests/7") == "plant/asks/7"
    assert names.reply_to_local("elsewhere") is None
