"""Publishers of one topic: leases, ownership, periods, and whether offers satisfy requests."""

from random import Random

import pytest

from overlane.core.units import NEVER, SECOND, Nanos
from overlane.pubsub.message import Message
from overlane.pubsub.policies.policy import (
    Mismatch,
    Offer,
    Policies,
    Policy,
    Request,
    mismatches,
    read_offer,
    read_policy_request,
    stamps,
)
from overlane.pubsub.policies.topic_publishers import (
    KEPT_MAX,
    PUBLISHERS_MAX,
    PublisherChange,
    PublisherOutcome,
    TopicPublishers,
)
from overlane.pubsub.publishing.qos_override import BadOverride

LEASE = 2 * SECOND
EXCLUSIVE = Policy(LEASE, NEVER, is_exclusive=True)


class Topic:
    """Publishers in the hands of a test; bodies stand for messages."""

    def __init__(self, policy: Policy = EXCLUSIVE, **strength: int) -> None:
        self.machine = TopicPublishers()
        self.policy = policy
        self.strength = strength

    def publish(self, name: str, body: str, at_s: float) -> tuple[list[str], list[PublisherChange]]:
        offer = Offer(name, *self.policy[:2], self.strength.get(name, 0), self.policy.is_exclusive)
        return self._shown(self.machine.heard(offer, Message("t", body.encode()), _ns(at_s)))

    def wait(self, until_s: float) -> tuple[list[str], list[PublisherChange]]:
        return self._shown(self.machine.expire(_ns(until_s)))

    @staticmethod
    def _shown(outcome: PublisherOutcome) -> tuple[list[str], list[PublisherChange]]:
        return [message.payload.decode() for message in outcome.deliver], list(outcome.changes)


def _ns(seconds: float) -> Nanos:
    return round(seconds * SECOND)


def test_a_publisher_that_is_silent_for_its_lease_is_lost_and_alive_again_when_it_publishes() -> None:
    topic = Topic(Policy(LEASE))
    assert topic.publish("a", "1", 0) == (["1"], [PublisherChange("alive", "a")])
    assert topic.publish("a", "2", 1.5) == (["2"], [])
    assert topic.wait(3.4) == ([], [])
    assert topic.machine.next_deadline() == _ns(3.5)
    assert topic.wait(3.5) == ([], [PublisherChange("lost", "a")])
    assert (topic.wait(9), topic.machine.next_deadline()) == (([], []), NEVER)
    assert topic.publish("a", "3", 10) == (["3"], [PublisherChange("alive", "a")])


def test_only_the_strongest_is_delivered_and_a_stronger_one_takes_over_at_once() -> None:
    topic = Topic(weak=1, strong=5, strongest=9)
    assert topic.publish("weak", "w1", 0)[0] == ["w1"]
    assert topic.publish("strong", "s1", 0.1)[0] == ["s1"]
    assert topic.publish("weak", "w2", 0.2)[0] == []
    assert topic.publish("strongest", "x1", 0.3)[0] == ["x1"]
    assert topic.publish("strong", "s2", 0.4)[0] == []
    assert topic.machine.owner == "strongest"


def test_when_the_owner_is_lost_nothing_that_its_successor_has_published_since_is_missing() -> None:
    topic = Topic(weak=1, middle=2, strong=5)
    topic.publish("weak", "w0", 0)
    topic.publish("strong", "s1", 0.1)
    topic.publish("middle", "m0", 0.2)
    topic.publish("strong", "s2", 0.5)  # whatever was kept before is out of date
    topic.publish("middle", "m1", 1.0)
    topic.publish("weak", "w1", 1.1)
    topic.publish("middle", "m2", 1.9)
    topic.publish("weak", "w2", 2.0)
    assert topic.wait(2.5) == (["m1", "m2"], [PublisherChange("lost", "strong")])
    assert topic.machine.owner == "middle"
    assert topic.wait(3.9) == (["w1", "w2"], [PublisherChange("lost", "middle")])
    assert topic.publish("weak", "w3", 3.95)[0] == ["w3"]
    assert topic.publish("strong", "s3", 3.96) == (["s3"], [PublisherChange("alive", "strong")])


def test_of_equally_strong_publishers_the_one_with_the_smaller_name_owns_the_topic() -> None:
    topic = Topic()
    assert topic.publish("b", "b1", 0)[0] == ["b1"]
    assert topic.publish("a", "a1", 0.1)[0] == ["a1"]
    assert topic.publish("b", "b2", 0.2)[0] == []


def test_leases_that_end_while_nobody_looks_count_in_their_order() -> None:
    topic = Topic(weak=1, strong=5)
    topic.publish("strong", "s", 0)
    topic.publish("weak", "w", 1)
    assert topic.wait(60) == (["w"], [PublisherChange("lost", "strong"), PublisherChange("lost", "weak")])
    assert topic.machine.owner is None


def test_missed_periods_are_counted_and_reported_ever_more_rarely() -> None:
    topic = Topic(Policy(NEVER, SECOND))
    topic.publish("a", "1", 0)
    assert topic.wait(1) == ([], [PublisherChange("missed", "a", 1)])
    assert topic.wait(9) == (
        [],
        [PublisherChange("missed", "a", 2), PublisherChange("missed", "a", 4), PublisherChange("missed", "a", 8)],
    )
    topic.publish("a", "2", 9.5)
    assert topic.wait(10.5) == ([], [PublisherChange("missed", "a", 1)])


def test_one_that_is_lost_misses_nothing_more() -> None:
    topic = Topic(Policy(LEASE, SECOND))
    topic.publish("a", "1", 0)
    assert topic.wait(60) == ([], [PublisherChange("missed", "a", 1), PublisherChange("lost", "a")])


def test_publishers_and_kept_messages_are_bounded() -> None:
    topic = Topic(strong=5)
    topic.publish("strong", "s", 0)
    for number in range(KEPT_MAX + 10):
        topic.publish("weak", str(number), 0.1)
    assert topic.wait(2.05)[0][0] == "10"
    crowd = Topic(Policy(LEASE))
    for number in range(PUBLISHERS_MAX + 5):
        assert crowd.publish(f"p{number}", "x", 0)[0] == ["x"]
    assert len(crowd.machine.publishers) == PUBLISHERS_MAX
    assert crowd.publish("late", "x", 5)[0] == ["x"]
    assert (len(crowd.machine.publishers), crowd.machine.alive) == (PUBLISHERS_MAX, ["late"])


@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_the_owner_is_the_strongest_alive_and_each_message_is_delivered_once_in_order(
    seed: int,
) -> None:
    random = Random(seed)
    names = "abcd"
    strength = {name: random.randint(0, 2) for name in names}
    topic = Topic(EXCLUSIVE, **strength)
    heard: dict[str, float] = {}
    delivered: list[str] = []
    clock = 0.0
    for number in range(200):
        clock += random.choice([0.1, 0.5, 1.0, 3.0])
        name = random.choice(names)
        if random.random() < 0.8:
            heard[name] = clock
            delivered += topic.publish(name, f"{name}{number:03}", clock)[0]
        else:
            delivered += topic.wait(clock)[0]
        alive = {one for one, at in heard.items() if clock < at + 2.0 - 1e-9}
        assert set(topic.machine.alive) == alive, f"seed {seed}"
        expected = min(alive, key=lambda one: (-strength[one], one), default=None)
        assert topic.machine.owner == expected, f"seed {seed}"
    assert len(delivered) == len(set(delivered)), f"seed {seed}"
    for name in names:
        own = [body for body in delivered if body.startswith(name)]
        assert own == sorted(own), f"seed {seed}"


# Offers and requests


def test_an_offer_is_no_longer_than_the_policy_of_its_topic() -> None:
    policy = Policy(5 * SECOND, SECOND)
    assert read_offer([], "p", policy) == Offer("p", 5 * SECOND, SECOND)
    asked = [("overlane-lease", "2s"), ("overlane-period", "3s"), ("overlane-strength", "7")]
    assert read_offer(asked, "p", policy) == Offer("p", 2 * SECOND, SECOND, 7)
    assert read_offer(stamps(Offer("p", 2 * SECOND, SECOND, 7)), "p", policy) == Offer("p", 2 * SECOND, SECOND, 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("overlane-lease", "soon"),
        ("overlane-lease", "0s"),
        ("overlane-period", "-1s"),
        ("overlane-strength", "-1"),
        ("overlane-strength", "9" * 40),
        ("overlane-strength", "١"),
    ],
)
def test_an_offer_that_cannot_be_read_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadOverride, match=name):
        read_offer([(name, value)], "p", Policy())


@pytest.mark.parametrize(
    ("offered", "requested", "found"),
    [
        (Policy(2 * SECOND), Request(2 * SECOND), []),
        (Policy(2 * SECOND), Request(1 * SECOND), [Mismatch("liveliness", "2s", "1s")]),
        (Policy(), Request(1 * SECOND), [Mismatch("liveliness", "none", "1s")]),
        (Policy(NEVER, SECOND), Request(NEVER, SECOND // 2), [Mismatch("period", "1s", "500ms")]),
        (EXCLUSIVE, Request(is_exclusive=False), [Mismatch("ownership", "exclusive", "shared")]),
        (EXCLUSIVE, Request(is_exclusive=True), []),
        (EXCLUSIVE, Request(), []),
    ],
)
def test_requests_are_satisfied_as_in_dds(offered: Policy, requested: Request, found: list[Mismatch]) -> None:
    assert mismatches(offered, requested) == found


def test_a_request_is_the_strictest_of_its_values() -> None:
    assert read_policy_request([("overlane-liveliness", "5s"), ("overlane-liveliness", "2s")]) == Request(2 * SECOND)
    with pytest.raises(BadOverride, match="overlane-ownership"):
        read_policy_request([("overlane-ownership", "mine")])


def test_the_most_specific_pattern_gives_the_policy() -> None:
    policies = Policies({"a/#": Policy(LEASE), "a/b": Policy(), "c": EXCLUSIVE})
    assert [policies.of(topic) for topic in ("a/x", "a/b", "c", "d")] == [Policy(LEASE), None, EXCLUSIVE, None]
    assert policies.offered("a/+") == [Policy(LEASE), Policy()]
    assert policies.offered("z") == [Policy()]
