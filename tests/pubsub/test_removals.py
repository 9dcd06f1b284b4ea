"""Removed retained messages stay removed: whoever sends an earlier one later is not believed, also after a restart."""

import pytest

from overlane.core.events import Erase, Save
from overlane.pubsub.limits import Limits
from overlane.pubsub.message import Message
from overlane.pubsub.retained import removals
from overlane.pubsub.retained.messages import RetainedMessages
from overlane.pubsub.retained.removals import TABLE, Removals


def kept(stamp: int, payload: bytes = b"x") -> Message:
    return Message("a/b", payload, 1, True, published_ns=stamp)


def test_an_earlier_message_does_not_come_back_after_a_restart() -> None:
    first = RetainedMessages(Limits())
    first.keep(kept(5))
    records = [one for one in first.keep(kept(7, b"")) if isinstance(one, Save)]
    assert [(one.table, one.key) for one in records] == [(TABLE, b"a/b")]
    again = RetainedMessages(Limits())
    again.removed.restore(records[0].key, records[0].value)
    assert again.keep_if_later(kept(6)) == []
    assert again.get("a/b") is None
    assert [(one.topic, one.payload, one.published_ns) for one in again.removals()] == [("a/b", b"", 7)]
    assert again.keep_if_later(kept(8)) != []
    assert again.stamp_of("a/b") == 8
    assert again.get("a/b") is not None


def test_where_there_are_no_other_brokers_a_removal_is_no_record() -> None:
    retained = RetainedMessages(Limits(), lambda: False)
    retained.keep(kept(5))
    assert retained.keep(kept(7, b"")) == [Erase("mqtt.retained", b"a/b")]
    assert retained.stamp_of("a/b") == 7


def test_the_oldest_removals_are_forgotten_with_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removals, "REMEMBERED_MAX", 2)
    removed = Removals(lambda: True)
    removed.add("a", 1)
    removed.add("b", 2)
    removed.add("a", 3)
    assert removed.add("c", 4) == [Save(TABLE, b"c", (4).to_bytes(8, "big")), Erase(TABLE, b"b")]
    assert list(removed) == ["a", "c"]
    assert removed.stamp_of("b") == 0


@pytest.mark.parametrize("value", [b"", b"1234567", b"123456789"])
def test_a_damaged_record_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="stamp"):
        Removals(lambda: True).restore(b"a", value)
