"""Observing: what the answers of brokers mean for the picture and the timeline. Nobody is asked here."""

import pytest
from glances import delivery, glance, link, route
from msgspec import structs

from overlane.adminapi.views import EventView, LinkCondition
from overlane.core.units import MS
from overlane.monitor.observer import MISSES_MAX, OTHER_TOPICS, Observer
from overlane.monitor.overlay_state import Figures
from overlane.network import Broker, Network, Topic
from overlane.network import Link as LinkSpec


def network(**coordinates: tuple[float, float]) -> Network:
    names = ("a", "b", "c")
    return Network(
        brokers=tuple(
            Broker(
                name=name,
                latitude=coordinates.get(name, (None, None))[0],
                longitude=coordinates.get(name, (None, None))[1],
            )
            for name in names
        ),
        links=(LinkSpec(ends=("a", "b"), latency_ns=10 * MS), LinkSpec(ends=("b", "c"), latency_ns=10 * MS)),
        topics=(Topic(filter="alarms/#", deadline_ns=60 * MS, reliability="reliable", routing="multipath"),),
    )


def test_before_anybody_answers_everything_is_there_and_unknown() -> None:
    picture = Observer(network(a=(47.0, -122.0))).picture
    assert {name: broker.state for name, broker in picture.brokers.items()} == dict.fromkeys("abc", "unknown")
    assert (picture.brokers["a"].latitude, picture.brokers["a"].longitude) == (47.0, -122.0)
    assert {name: one.state for name, one in picture.links.items()} == {"a|b": "unknown", "b|c": "unknown"}
    assert list(picture.topics) == ["alarms/#"]


@pytest.mark.parametrize(
    ("one", "other", "state"),
    [
        ("up", "up", "up"),
        ("up", "suspect", "suspect"),
        ("failed", "up", "failed"),
        ("down", "suspect", "down"),
        ("up", None, "up"),
        (None, None, "unknown"),
    ],
)
def test_a_link_is_as_bad_as_the_worse_of_its_ends_says(
    one: LinkCondition | None, other: LinkCondition | None, state: str
) -> None:
    observer = Observer(network())
    observer.update(
        1.0,
        {
            "a": glance(link("b", one)) if one else "connection refused",
            "b": glance(link("a", other)) if other else "connection refused",
        },
    )
    assert observer.picture.links["a|b"].state == state


def test_each_direction_of_a_link_is_its_senders_to_tell() -> None:
    observer = Observer(network())
    observer.update(1.0, {"a": glance(link("b", latency_ms=10.04)), "b": glance(link("a", latency_ms=80.0))})
    there, back = observer.picture.links["a|b"].ways
    assert (there.latency_ms, back.latency_ms) == (10.0, 80.0)


def test_a_broker_that_refuses_is_lost_at_once_and_told_when_it_is_back() -> None:
    observer = Observer(network())
    observer.update(1.0, {"a": glance()})
    change = observer.update(2.0, {"a": "connection refused"})
    assert (change.brokers["a"].state, change.brokers["a"].why) == ("lost", "connection refused")
    assert [(one.text, one.cause) for one in change.happenings] == [("a is lost", "connection refused")]
    change = observer.update(3.0, {"a": glance(incarnation=2)})
    assert [one.text for one in change.happenings] == ["a is back, restarted"]
    assert observer.picture.brokers["a"].state == "serving"


def test_a_broker_that_keeps_silent_for_a_moment_is_not_lost() -> None:
    observer = Observer(network())
    observer.update(1.0, {"a": glance()})
    for look in range(MISSES_MAX):
        assert observer.update(2.0 + look, {"a": "no response within 3 s"}).happenings == ()
        assert observer.picture.brokers["a"].state == "serving"
    assert [one.text for one in observer.update(9.0, {"a": "no response within 3 s"}).happenings] == ["a is lost"]


def test_a_restart_between_two_looks_is_noticed() -> None:
    observer = Observer(network())
    observer.update(1.0, {"a": glance(incarnation=1)})
    assert [one.text for one in observer.update(2.0, {"a": glance(incarnation=2)}).happenings] == ["a was restarted"]


def test_an_event_is_told_once_at_its_own_time() -> None:
    observer = Observer(network())
    observer.update(10.0, {"a": glance()})
    event = EventView(number=1, ago_s=0.4, kind="link", peer="b", state="failed")
    change = observer.update(11.0, {"a": glance(events=(event,))})
    assert [(one.at_s, one.text, one.link) for one in change.happenings] == [(10.6, "a - b has failed", "a|b")]
    assert observer.after("a") == 1
    assert observer.update(12.0, {"a": glance(events=(event,))}).happenings == ()


def test_a_route_is_shown_with_its_filter_and_without_the_brokers_own() -> None:
    observer = Observer(network())
    mine = route(1, {"c": [["a", "b", "c"]]}, ["alarms/1"], 60.0)
    theirs = route(2, {"c": [["a", "b", "c"]]}, ["$overlane/retained"], None)
    other = route(3, {"b": [["a", "b"]]}, ["chat"], None)
    observer.update(1.0, {"a": glance(routes=(mine, theirs, other))})
    assert {name: one.filters for name, one in observer.picture.routes.items()} == {
        "a/1": ("alarms/#",),
        "a/3": (OTHER_TOPICS,),
    }
    assert observer.picture.routes["a/1"].paths == {"c": (("a", "b", "c"),)}


def test_a_route_whose_topics_are_not_known_is_of_those_that_are_published_at_its_source() -> None:
    spec = network()
    alike = tuple(Topic(filter=name, deadline_ns=60 * MS) for name in ("alarms/#", "doors/#", "lifts/#"))
    observer = Observer(structs.replace(spec, topics=alike))
    unknown = route(1, {"c": [["a", "b", "c"]]}, [], 60.0)
    told = {"doors/#": 5, "lifts/#": 0}
    observer.update(1.0, {"a": glance(routes=(unknown,), published=told), "b": glance(published={"lifts/#": 3})})
    assert observer.picture.routes["a/1"].filters == ("doors/#",)


def test_a_topic_adds_up_what_all_brokers_published_and_delivered() -> None:
    observer = Observer(network())
    observer.update(0.0, {"a": glance(published={"alarms/#": 0}), "b": glance(), "c": glance()})
    observer.update(
        1.0,
        {
            "a": glance(published={"alarms/#": 100}),
            "b": glance(deliveries=(delivery("alarms/#", "a", 100, 100),)),
            "c": glance(deliveries=(delivery("alarms/#", "a", 98, 90, age_us=70_000),)),
        },
    )
    topic = observer.picture.topics["alarms/#"]
    assert (topic.deadline_ms, topic.reliable, topic.rate_hz) == (60.0, True, 100.0)
    assert topic.lately == Figures(published=100, delivered=198, in_time=190, p50_ms=10.0, p99_ms=70.0, max_ms=70.0)
    assert observer.picture.brokers["b"].in_time == 1.0
    assert observer.picture.brokers["c"].in_time == round(90 / 98, 4)


def test_totals_go_on_over_the_restart_of_a_broker() -> None:
    observer = Observer(network())
    observer.update(1.0, {"b": glance(deliveries=(delivery("alarms/#", "a", 10, 10),), incarnation=1)})
    observer.update(2.0, {"b": "connection refused"})
    observer.update(3.0, {"b": glance(deliveries=(delivery("alarms/#", "a", 4, 4),), incarnation=2)})
    assert observer.picture.topics["alarms/#"].total.delivered == 14


def test_a_broker_that_is_in_no_file_is_shown_as_a_neighbour_tells_of_it() -> None:
    observer = Observer(network())
    observer.update(1.0, {"a": glance(link("stranger"))})
    assert observer.picture.links["a|stranger"].state == "up"
    assert observer.picture.brokers["stranger"].state == "unknown"


def test_what_has_not_changed_is_not_told_again() -> None:
    observer = Observer(network())
    answers = {"a": glance(link("b")), "b": glance(link("a")), "c": glance()}
    observer.update(1.0, answers)
    observer.update(2.0, answers)
    assert observer.update(3.0, answers).size == 0


def test_two_brokers_with_one_name_and_brokers_beyond_the_limit_are_on_the_timeline() -> None:
    observer = Observer(network())
    observer.update(10.0, {"a": glance()})
    conflict = EventView(number=1, ago_s=0.0, kind="name-conflict", peer="b", cause="one at 192.0.2.7 was refused")
    refused = EventView(number=2, ago_s=0.0, kind="brokers-refused", peer="c", cause="7 adverts were not kept")
    change = observer.update(11.0, {"a": glance(events=(conflict, refused))})
    assert [(one.kind, one.weight, one.text, one.cause) for one in change.happenings] == [
        ("broker", "bad", "b runs twice, says a", "one at 192.0.2.7 was refused"),
        ("broker", "bad", "c tells a of too many brokers", "7 adverts were not kept"),
    ]
