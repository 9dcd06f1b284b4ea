"""Pictures and changes: what is told is enough to see what the monitor sees."""

import random

import msgspec
import pytest

from overlane.monitor.history import TARGET, Head, History
from overlane.monitor.overlay_state import (
    BrokerStatus,
    Link,
    LinkDirection,
    OverlayDelta,
    OverlayState,
    apply_delta,
    link_name,
    rounded,
    state_delta,
)
from overlane.monitor.timeline_events import TimelineEvent


def random_picture(luck: random.Random, at_s: float) -> OverlayState:
    names = [name for name in "abcdefgh" if luck.random() < 0.7]
    links = {
        link_name(one, other): Link(
            ends=(one, other),
            state="up",
            ways=(LinkDirection(state="up", latency_ms=float(luck.randrange(3))), LinkDirection()),
        )
        for one in names
        for other in names
        if one < other and luck.random() < 0.5
    }
    brokers = {name: BrokerStatus(state=luck.choice(["serving", "lost"]), clients=luck.randrange(2)) for name in names}
    return OverlayState(at_s=at_s, brokers=brokers, links=links)


def test_a_picture_and_the_changes_since_are_the_picture_now() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    luck = random.Random(seed)
    for _ in range(50):
        before = shown = random_picture(luck, 0.0)
        for step in range(1, 10):
            after = random_picture(luck, float(step))
            told = msgspec.json.decode(msgspec.json.encode(state_delta(before, after)), type=OverlayDelta)
            shown = apply_delta(shown, told)
            assert shown == after
            before = after


def test_what_stays_the_same_is_not_told() -> None:
    before = OverlayState(at_s=0.0, brokers={"a": BrokerStatus(state="serving"), "b": BrokerStatus(state="serving")})
    after = OverlayState(
        at_s=1.0, brokers={"a": BrokerStatus(state="serving"), "b": BrokerStatus(state="lost", why="x")}
    )
    assert state_delta(before, after) == OverlayDelta(at_s=1.0, brokers={"b": BrokerStatus(state="lost", why="x")})
    assert msgspec.json.encode(state_delta(before, before)) == b'{"at_s":0.0}'


def test_a_link_has_one_name_from_both_ends() -> None:
    assert link_name("b", "a") == link_name("a", "b") == "a|b"


@pytest.mark.parametrize(("value", "shown"), [(14.0049, 14.0), (0.0, 0.0), (123456.0, 123000.0), (0.00123456, 0.00123)])
def test_values_are_rounded_to_what_can_be_seen(value: float, shown: float) -> None:
    assert rounded(value) == shown


def happening(number: int, at_s: float) -> TimelineEvent:
    return TimelineEvent(number=number, at_s=at_s, kind="deed", weight="note", text=f"deed {number}")


def test_the_past_is_bounded_and_still_leads_to_the_same_picture() -> None:
    pictures = [
        OverlayState(at_s=float(step), brokers={"a": BrokerStatus(state="serving", clients=step)})
        for step in range(1, 100)
    ]
    past = History(Head(title="x", is_live=True, target=TARGET, picture=OverlayState(at_s=0.0)), items_max=10)
    before = OverlayState(at_s=0.0)
    for picture in pictures:
        past.add(state_delta(before, picture, (happening(int(picture.at_s), picture.at_s),)))
        before = picture
    head_line, *lines = list(past.lines())
    head = msgspec.json.decode(head_line, type=Head)
    changes = [msgspec.json.decode(line, type=OverlayDelta) for line in lines]
    assert len(changes) <= 10
    shown = head.picture
    for change in changes:
        shown = apply_delta(shown, change)
    assert shown == pictures[-1]
    told = [*head.happenings, *(one for change in changes for one in change.happenings)]
    assert [one.number for one in told] == list(range(1, 100))


def test_what_is_older_than_an_hour_becomes_part_of_the_first_picture() -> None:
    past = History(Head(title="x", is_live=True, target=TARGET, picture=OverlayState(at_s=0.0)), kept_s=3600)
    for at_s in (1.0, 2.0, 3601.5):
        past.add(OverlayDelta(at_s=at_s))
    head = msgspec.json.decode(next(iter(past.lines())), type=Head)
    assert head.picture.at_s == 1.0
