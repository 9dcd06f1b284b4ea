"""A lane: order, acknowledgement only of what the other side has, outages, and the rate of a backlog."""

from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.core.units import MS, NEVER, SECOND
from overlane.gateways.bridge import Bridge, neighbourhood
from overlane.gateways.lane import WINDOW, Acknowledge, GatewayLane, LaneEffect, Send
from overlane.gateways.message import VIA, BridgedMessage
from overlane.network.schema import Gateway
from overlane.topic_names import NameRule


def message(topic: str = "t", *via: str) -> BridgedMessage:
    return BridgedMessage(topic, b"x", properties=((VIA, ",".join(via)),) if via else ())


def lane(rate: int | None = None) -> GatewayLane:
    return GatewayLane(lambda one: one if one.topic != "loop" else "looped", rate)


def sent(effects: list[LaneEffect]) -> list[int]:
    return [one.number for one in effects if isinstance(one, Send)]


def test_a_message_is_acknowledged_when_the_other_side_has_it() -> None:
    one = lane()
    one.opened(0)
    assert one.arrived(message(), 0) == (1, [Send(1, message())])
    assert one.accepted(1, 0) == [Acknowledge(1)]
    assert one.accepted(1, 0) == []
    assert (one.counts.passed, one.waiting) == (1, 0)


def test_what_was_under_way_when_the_connection_was_lost_is_sent_again_in_order() -> None:
    one = lane()
    one.opened(0)
    for _ in range(3):
        one.arrived(message(), 0)
    one.accepted(2, 0)
    one.closed(forgot=True)
    assert one.arrived(message(), 0) == (4, [])
    assert sent(one.opened(0)) == [1, 3, 4]


def test_a_side_that_sends_again_itself_is_not_given_messages_twice() -> None:
    one = lane()
    one.opened(0)
    one.arrived(message(), 0)
    one.closed(forgot=False)
    assert sent(one.opened(0)) == []
    assert one.accepted(1, 0) == [Acknowledge(1)]


def test_what_does_not_cross_is_acknowledged_and_counted() -> None:
    one = lane()
    assert one.arrived(message("loop"), 0) == (1, [Acknowledge(1)])
    assert one.counts.looped == 1


def test_a_final_refusal_ends_a_message_and_another_is_tried_again_later() -> None:
    one = lane()
    one.opened(0)
    one.arrived(message(), 0)
    one.arrived(message(), 0)
    assert one.refused(1, "not authorised", 0, is_final=True) == [Acknowledge(1)]
    assert one.refused(2, "quota", 0, is_final=False) == []
    assert one.last_error == "t: quota"
    assert one.next_deadline() == SECOND
    assert sent(one.tick(SECOND)) == [2]
    assert (one.counts.refused, one.counts.passed) == (1, 0)


def test_no_more_than_the_window_is_under_way() -> None:
    one = lane()
    one.opened(0)
    for _ in range(WINDOW + 5):
        one.arrived(message(), 0)
    assert one.waiting == WINDOW + 5
    assert one.next_deadline() == NEVER
    assert sent(one.accepted(1, 0)) == [WINDOW + 1]


def test_a_backlog_is_passed_on_at_its_rate_until_nothing_waits() -> None:
    one = lane(rate=100)
    for _ in range(200):
        one.arrived(message(), 0)
    now, times = 0, []
    effects = one.opened(now)
    while True:
        for number in sent(effects):
            times.append(now)
            one.accepted(number, now)
        if (at := one.next_deadline()) == NEVER:
            break
        now = at
        effects = one.tick(now)
    assert len(times) == 200
    for start in range(0, now, 100 * MS):
        assert sum(start <= at < start + SECOND for at in times) <= 100 + 10
    assert times[-1] >= 1.8 * SECOND
    assert not one.is_metered
    now += SECOND
    assert len(sent([effect for _ in range(50) for effect in one.arrived(message(), now)[1]])) == 50


@examples(150)
@given(
    st.lists(st.sampled_from(["arrive", "accept", "close", "forget", "open", "tick"]), max_size=80), st.integers(0, 3)
)
def test_every_message_is_acknowledged_once_and_only_after_it_was_accepted(events: list[str], rate: int) -> None:
    one = lane(rate=rate or None)
    now = 0
    held: dict[int, None] = {}  # by the receiving side, not answered
    first_sent: list[int] = []
    accepted: set[int] = set()
    acknowledged: list[int] = []
    arrived = 0

    def carry_out(effects: list[LaneEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                assert effect.number not in held
                held[effect.number] = None
                if effect.number not in first_sent:
                    first_sent.append(effect.number)
            else:
                acknowledged.append(effect.number)

    def accept() -> None:
        if held:
            number = next(iter(held))
            del held[number]
            accepted.add(number)
            carry_out(one.accepted(number, now))

    for event in [*events, "open", *["tick", "accept"] * 200]:
        now += 500 * MS
        if event == "arrive":
            arrived += 1
            carry_out(one.arrived(message(), now)[1])
        elif event == "accept":
            accept()
        elif event == "close":
            one.closed(forgot=False)
        elif event == "forget":
            one.closed(forgot=True)
            held.clear()
        elif event == "open":
            carry_out(one.opened(now))
        else:
            carry_out(one.tick(now))
    assert acknowledged == list(dict.fromkeys(acknowledged))
    assert set(acknowledged) == accepted == set(range(1, arrived + 1))
    assert first_sent == sorted(first_sent)


def gateway(name: str, to: str = "mqtt://f:1883") -> Gateway:
    return Gateway(name=name, broker="here", to=to, topics=(NameRule("#", "plant/#"),))


def test_a_message_never_returns_to_where_it_came_from_through_any_gateway() -> None:
    one, two, other = gateway("one"), gateway("two"), gateway("other", "mqtt://g:1883")
    everyone = (one, two, other)
    bridges = {each.name: Bridge(each, neighbourhood(each, everyone)) for each in everyone}

    def crossed(bridge: Bridge, to_overlay: bool, *via: str) -> str | None:
        lane = bridge.inwards if to_overlay else bridge.outwards
        lane.opened(0)
        _, effects = lane.arrived(message("x" if to_overlay else "plant/x", *via), 0)
        return effects[0].message.properties[0][1] if isinstance(effects[0], Send) else None

    assert crossed(bridges["one"], True) == "one"
    assert crossed(bridges["one"], False, "two") is None  # it came from this broker through the other gateway
    assert crossed(bridges["other"], False, "one") == "one,other"
    assert crossed(bridges["two"], True, "one") is None  # the overlay had it
    assert crossed(bridges["two"], True, "elsewhere", "other") is None
    assert crossed(bridges["two"], True, "elsewhere") == "elsewhere,two"
    assert crossed(bridges["two"], True, *("x",) * 16) is None  # in a circle


def test_gateways_to_one_broker_are_a_group() -> None:
    one, two, other = gateway("b"), gateway("a"), gateway("c", "mqtt://g:1883")
    assert neighbourhood(one, (one, two, other)).group_name == "a"
    assert neighbourhood(one, (one, two, other)).is_shared
    assert not neighbourhood(other, (one, two, other)).is_shared
