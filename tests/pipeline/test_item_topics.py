"""Items of topics as a column: the same as the agents of brokers say."""

from random import Random

import pytest

from overlane.items.directory import item_of as item_at_agents
from overlane.items.directory import preferred
from overlane.pipeline.analysis.item_topics import item_of
from sparks import PARTS, the_spark

pytestmark = [PARTS, pytest.mark.slow]

WORDS = ("a", "b", "", "$c", "d.e", "é")


def test_items_are_those_of_the_agents_for_filters_with_and_without_wildcards() -> None:
    luck = Random(7)

    def levels(words: tuple[str, ...]) -> list[str]:
        return [luck.choice(words) for _ in range(luck.randint(1, 4))]

    topics = sorted({"/".join(levels(WORDS)) for _ in range(400)} - {""})
    filters: dict[str, tuple[str, ...]] = {}
    for number in range(12):
        drawn = [*levels((*WORDS[:2], *WORDS[4:], "+")), *(["#"] if luck.random() < 0.4 else [])]
        filters[f"item-{number}"] = ("/".join(drawn) or "+",)
    filters["two"] = ("a/b/#", "+/+/a")
    rows = the_spark().createDataFrame([(topic,) for topic in topics], "topic string")
    found = {
        row["topic"]: row["item"]
        for row in rows.select("topic", item_of("topic", preferred(filters), 1).alias("item")).collect()
    }
    expected = {topic: item_at_agents(topic, filters) or f"{topic.split('/')[0]}/#" for topic in topics}
    assert found == expected
    assert len(set(expected.values()) & filters.keys()) > 6, "too few filters match to tell anything"


def test_without_items_in_the_network_file_the_leading_levels_are_the_item() -> None:
    rows = the_spark().createDataFrame([("plant/1/x",), ("fleet",)], "topic string")
    assert [row[0] for row in rows.select(item_of("topic", (), 2)).collect()] == ["plant/1", "fleet"]
