"""Bundles and groups follow from the first two levels of a topic, also where a reserved name carries it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.bundles import (
    ALL,
    ANY,
    BUNDLES,
    GROUP_MAX,
    NONE,
    bundle_of,
    bundle_of_group,
    bundles_of,
    group_of,
    groups_of,
)
from overlane.core.topics import matches

LEVEL = st.text("ab", max_size=2)
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
FILTER = st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=4).map("/".join).filter(bool)


@given(topic=TOPIC, topic_filter=st.one_of(FILTER, FILTER.map(lambda one: f"{one}/#"), st.just("#")))
def test_a_filter_concerns_the_group_of_every_topic_that_it_matches(topic: str, topic_filter: str) -> None:
    if matches(topic_filter, topic):
        assert groups_of(topic_filter) in (ANY, group_of(topic))
        assert bundle_of(topic) in bundles_of(topic_filter)


@given(topic=TOPIC)
def test_a_bundle_is_a_set_of_groups(topic: str) -> None:
    group = group_of(topic)
    assert group is not None
    assert 0 <= group <= GROUP_MAX
    assert bundle_of(topic) == bundle_of_group(group) < BUNDLES


@pytest.mark.parametrize(
    "name",
    [
        "$retained/plant/line1/x",
        "$share/group/broker/0123456789ab/plant/line1/+",
        "$want/60000/1/plant/line1/#",
        "$dead-letter/plant/line1",
        "$handout/broker/plant/line1/x",
    ],
)
def test_a_reserved_name_belongs_to_the_group_of_what_it_carries(name: str) -> None:
    assert groups_of(name) == group_of("plant/line1/x")
    assert group_of(name) == group_of("plant/line1")
    assert bundles_of(name) == {bundle_of("plant/line1")}


@pytest.mark.parametrize("name", ["$retained/#", "$share/group/broker/0123456789ab/+/x", "$want/1/1/plant/+"])
def test_a_reserved_name_with_an_early_wildcard_concerns_all_groups(name: str) -> None:
    assert groups_of(name) == ANY
    assert bundles_of(name) == ALL


@pytest.mark.parametrize("name", ["$SYS/broker", "$SYS/#", "$share/group", "$retained", "$", "$other/plant/line1"])
def test_other_names_of_the_overlay_belong_to_no_group(name: str) -> None:
    assert group_of(name) is None
    assert groups_of(name) is None
    assert bundle_of(name) is None
    assert bundles_of(name) == NONE
