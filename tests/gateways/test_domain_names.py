"""Names of a domain: one counterpart for each name, and filters that match all that is needed."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from test_topic_names import FILTERS, RULES, TOPICS

from examples import examples
from overlane.core.topics import matches
from overlane.domain_names import DomainNames, intersection, unclear
from overlane.topic_names import Ambiguity, NameRule

PLANT = DomainNames([NameRule("#", "plant/#"), NameRule("alarms/#", "alarms/#"), NameRule("all/#", "#")])
pairs = st.sampled_from(RULES).map(lambda pair: NameRule(*pair))
some_rules = st.lists(pairs, max_size=4)
MORE_TOPICS = [*TOPICS, "c", "c/a", "b/c/a"]


@pytest.mark.parametrize(
    ("local", "overlay"),
    [
        ("press/1", "plant/press/1"),
        ("alarms/fire", "alarms/fire"),
        ("all/weather/1", "weather/1"),
        ("all", None),
        ("all/plant/press/1", None),
        ("all/alarms/fire", None),
        ("$SYS/load", "$SYS/load"),
        (None, "plant/alarms/fire"),
        (None, "plant/all/1"),
    ],
)
def test_the_narrowest_rule_counts_and_a_name_that_is_taken_has_no_counterpart(
    local: str | None, overlay: str | None
) -> None:
    if local is not None:
        assert PLANT.to_overlay(local) == overlay
    if overlay is not None:
        assert PLANT.to_local(overlay) == local


def test_topics_without_a_rule_keep_their_names_unless_another_topic_has_them() -> None:
    names = DomainNames([NameRule("press/+", "plant/press/+")])
    assert names.to_overlay("weather/1") == "weather/1"
    assert names.to_local("weather/1") == "weather/1"
    assert names.to_overlay("plant/press/1") is None
    assert names.to_local("press/1") is None


def test_rules_of_which_neither_is_narrower_are_ambiguous() -> None:
    rules = [NameRule("+/x", "p/+/x"), NameRule("y/+", "q/y/+"), NameRule("#", "r/#"), NameRule("z/z/z/#", "r/#")]
    assert list(unclear(rules)) == [Ambiguity(0, 1, "local"), Ambiguity(2, 3, "overlay")]


@pytest.mark.parametrize(
    ("local", "overlay"),
    [
        ("press/+", ("plant/press/+",)),
        ("#", ("#",)),
        ("all/weather/#", ("weather/#",)),
        ("all/#", ("#",)),
        ("alarms/+", ("alarms/+",)),
        ("+/fire", ("alarms/fire", "plant/+/fire", "fire")),
        ("$SYS/#", ("$SYS/#",)),
    ],
)
def test_a_filter_becomes_all_filters_that_its_topics_need(local: str, overlay: tuple[str, ...]) -> None:
    assert set(PLANT.filters_to_overlay(local)) == set(overlay)


def test_a_filter_has_an_exact_counterpart_where_one_rule_counts_for_all_its_topics() -> None:
    assert PLANT.exact_to_overlay("press/+/temp") == "plant/press/+/temp"
    assert PLANT.exact_to_local("plant/press/+/temp") == "press/+/temp"
    assert PLANT.exact_to_overlay("alarms/#") == "alarms/#"
    assert PLANT.exact_to_overlay("#") is None
    assert PLANT.exact_to_overlay("all/#") is None
    assert PLANT.exact_to_local("plant/+/1") is None, "plant/all/1 has no local name"


@given(some_rules)
@examples(100)
def test_no_name_has_two_counterparts_and_no_two_names_have_the_same(rules: list[NameRule]) -> None:
    assume(not list(unclear(rules)))
    names = DomainNames(rules)
    for topic in MORE_TOPICS:
        if (overlay := names.to_overlay(topic)) is not None:
            assert names.to_local(overlay) == topic
        if (local := names.to_local(topic)) is not None:
            assert names.to_overlay(local) == topic


@given(some_rules, st.sampled_from(FILTERS).filter(bool))
@examples(100)
def test_filters_match_the_counterpart_of_every_topic_that_they_matched(
    rules: list[NameRule], topic_filter: str
) -> None:
    assume(not list(unclear(rules)))
    names = DomainNames(rules)
    to_overlay, to_local = names.filters_to_overlay(topic_filter), names.filters_to_local(topic_filter)
    exact = names.exact_to_overlay(topic_filter)
    for topic in MORE_TOPICS:
        overlay, local = names.to_overlay(topic), names.to_local(topic)
        if matches(topic_filter, topic) and not topic.startswith("$"):
            assert overlay is None or any(matches(one, overlay) for one in to_overlay)
            assert local is None or any(matches(one, local) for one in to_local)
            assert exact is None or overlay is None or matches(exact, overlay)
        if exact is not None and matches(exact, topic) and not topic.startswith("$"):
            assert local is None or matches(topic_filter, local)


@given(st.sampled_from(FILTERS).filter(bool), st.sampled_from(FILTERS).filter(bool))
@examples(200)
def test_an_intersection_matches_what_both_filters_match(one: str, other: str) -> None:
    both = intersection(one, other)
    for topic in TOPICS:
        is_common = matches(one, topic) and matches(other, topic)
        assert is_common == (both is not None and matches(both, topic)), topic
