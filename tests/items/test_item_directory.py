"""The directory of items: lookup by topic, and entries from outside."""

import pytest

from overlane.items.directory import At, BadEntry, Entry, ItemDirectory, decode_entry


def entry(item: str, *topics: str, epoch: int = 1, primary: str = "a", mirror: str = "b") -> Entry:
    return Entry(item, "west", topics, epoch, At(primary, {"mqtt": "h:1"}), At(mirror, {"mqtt": "h:2"}))


def test_a_topic_belongs_to_the_item_with_the_most_specific_filter() -> None:
    directory = ItemDirectory([entry("all", "roads/#"), entry("north", "roads/north/#"), entry("toll", "roads/+/toll")])
    found = {topic: directory.find(topic) for topic in ("roads/east/1", "roads/north/1", "roads/north/toll", "rail/1")}
    assert {topic: one and one.item for topic, one in found.items()} == {
        "roads/east/1": "all",
        "roads/north/1": "north",
        "roads/north/toll": "north",
        "rail/1": None,
    }


def test_a_filter_is_within_an_item_if_that_has_all_its_topics() -> None:
    directory = ItemDirectory([entry("all", "roads/#"), entry("north", "roads/north/#")])
    within = {one: directory.within(one) for one in ("roads/north/1", "roads/east/#", "roads/#", "#")}
    assert {one: found and found.item for one, found in within.items()} == {
        "roads/north/1": "north",
        "roads/east/#": "all",
        "roads/#": None,  # some of it is another item's
        "#": None,
    }


def test_an_entry_of_an_earlier_epoch_is_old_news() -> None:
    directory = ItemDirectory([entry("all", "roads/#", epoch=5)])
    assert not directory.take(entry("all", "roads/#", epoch=4, primary="x"))
    assert directory.take(entry("all", "roads/#", epoch=6, primary="x"))
    assert not directory.take(entry("all", "roads/#", epoch=6, primary="x"))
    found = directory.find("roads/1")
    assert found is not None
    assert found.primary.broker == "x"
    assert directory.remove("all")
    assert directory.find("roads/1") is None


def test_entries_are_json_and_checked() -> None:
    one = entry("all", "roads/#")
    assert decode_entry(one.encode()) == one
    for wrong in (b"", b"{}", b"[]", one.encode().replace(b"roads/#", b"roads/#/x"), b"\xff", b"x" * 100_000):
        with pytest.raises(BadEntry):
            decode_entry(wrong)
