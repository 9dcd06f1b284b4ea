"""Deadlines that clients ask for: exact while there are few of them, bounded in number whatever they ask."""

import pytest
from clients import Bench
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.events import PublishResult
from overlane.core.limits import LABELS_MAX
from overlane.core.qos import DEADLINE_US_MAX, QosClass, coarse_us
from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.pubsub.cluster.directory import ClusterDirectory
from overlane.pubsub.cluster.names import share_name, want_name
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.publishing.qos_override import EXACT_MAX, IDLE_MAX, Deadlines, QosOverride


class Far(Alone):
    is_alone = False

    def __init__(self) -> None:
        self.classes: list[QosClass] = []
        self.filters: list[str] = []

    def carries(self, topic: str) -> bool:
        return not topic.startswith("$")

    def publish(
        self,
        topic: str,  # noqa: ARG002
        body: bytes,  # noqa: ARG002
        flags: int,  # noqa: ARG002
        qos: QosClass,
        now: Nanos,  # noqa: ARG002
        served: tuple[str, ...] = (),  # noqa: ARG002
    ) -> PublishResult:
        self.classes.append(qos)
        return PublishResult.ACCEPTED

    def subscribe(self, subscriber: str, topic_filter: str, durable: bool, now: Nanos) -> None:  # noqa: ARG002
        self.filters.append(topic_filter)


def test_there_are_no_more_labels_than_an_advert_may_have() -> None:
    edges = {edge + by for bits in range(33) for edge in (1 << bits, 3 << bits, 5 << bits, 7 << bits) for by in (-1, 0)}
    found = {coarse_us(us) for us in edges if 0 <= us <= DEADLINE_US_MAX}
    found |= {coarse_us(us) for us in range(1 << 16)}
    assert len(found) < LABELS_MAX


@given(st.integers(0, DEADLINE_US_MAX))
def test_a_label_is_never_later_and_not_much_earlier_than_its_deadline(deadline_us: int) -> None:
    coarse = coarse_us(deadline_us)
    assert coarse <= deadline_us < coarse * 5 / 4 or coarse == deadline_us
    assert coarse_us(coarse) == coarse


@pytest.mark.parametrize("deadline_ns", [0, 1, 999, US, 60 * MS, 100_000 * SECOND, NEVER - 1])
def test_a_class_is_labelled_as_hops_label_its_parcels(deadline_ns: Nanos) -> None:
    qos = QosClass(deadline_ns)
    assert qos.label == str(coarse_us(qos.deadline_us))


def test_a_few_deadlines_are_taken_as_they_are() -> None:
    deadlines = Deadlines()
    wanted = [number * MS + 17 * US for number in range(1, EXACT_MAX + 1)]
    assert [deadlines.settle(one, 0) for one in wanted * 2] == wanted * 2


@given(st.lists(st.integers(1, NEVER - 1), max_size=400), st.integers(0, 3))
def test_however_many_are_asked_for_there_are_few_and_none_is_later(asked: list[Nanos], seconds: int) -> None:
    deadlines = Deadlines()
    settled = {one: deadlines.settle(one, at * seconds * SECOND // 100) for at, one in enumerate(asked)}
    assert all(0 < got <= max(one, US) for one, got in settled.items())
    assert len(set(settled.values())) <= EXACT_MAX + LABELS_MAX


def test_a_deadline_that_nobody_asks_for_any_more_makes_room() -> None:
    deadlines = Deadlines()
    for number in range(1, EXACT_MAX + 1):
        deadlines.settle(number * MS, 0)
    late = 12_345 * US
    assert deadlines.settle(late, SECOND) < late
    deadlines.settle(1 * MS, IDLE_MAX)
    assert deadlines.settle(late, IDLE_MAX + 2 * SECOND) == late
    assert deadlines.settle(1 * MS, IDLE_MAX + 2 * SECOND) == 1 * MS


def test_a_client_with_thousands_of_deadlines_makes_few_classes() -> None:
    far = Far()
    bob = Bench(uplink=far).client("bob")
    for number in range(3_000):
        bob.publish("t", b"x", user_properties=[("overlane-deadline", f"{100_000 + 37 * number}us")])
    assert len(far.classes) == 3_000
    assert len(set(far.classes)) <= EXACT_MAX + LABELS_MAX


def test_subscribers_with_thousands_of_deadlines_make_few_wishes() -> None:
    far = Far()
    bench = Bench(uplink=far, subscriptions_per_client=3_000)
    alice = bench.client("alice")
    for number in range(1_000):
        alice.subscribe("t", user_properties=[("overlane-deadline", f"{100_000 + 37 * number}us")])
    assert len({name for name in far.filters if name.startswith("$want/")}) <= EXACT_MAX + LABELS_MAX


def test_a_directory_follows_what_others_need_change_by_change() -> None:
    directory = ClusterDirectory()
    wanted = want_name(QosOverride(60 * MS), "t/#")
    directory.note(wanted, "b", True)
    directory.note(wanted, "c", True)
    directory.note(want_name(QosOverride(40 * MS, reliable=True), "t/1"), "c", True)
    directory.note(want_name(QosOverride(strict=True), "t/2"), "c", True)
    assert [directory.override(topic) for topic in ("t/1", "t/2", "u")] == [
        QosOverride(40 * MS, True, False),
        QosOverride(60 * MS, False, True),
        QosOverride(NEVER, False, False),
    ]
    directory.note(want_name(QosOverride(40 * MS, reliable=True), "t/1"), "c", False)
    directory.note(wanted, "c", False)
    assert directory.override("t/1") == QosOverride(60 * MS, False, False)
    directory.note(wanted, "b", False)
    assert directory.override("t/1") == QosOverride(NEVER, False, False)
    for broker in ("c", "b"):
        directory.note(share_name("g", broker, "s/+", "s/+"), broker, True)
    assert [(one.group, one.filter, one.brokers) for one in directory.shared("s/1")] == [("g", "s/+", ("b", "c"))]
    directory.note(share_name("g", "b", "s/+", "s/+"), "b", False)
    assert [one.brokers for one in directory.shared("s/1")] == [("c",)]
    directory.note(share_name("g", "c", "s/+", "s/+"), "c", False)
    assert directory.shared("s/1") == []


@pytest.mark.parametrize(
    "name", ["$want/x/1/t", "$want/-5/0/t", "$want/9/t", "$share/g/b", "$want/" + "9" * 5_000 + "/0/t"]
)
def test_a_reserved_name_that_means_nothing_means_nothing(name: str) -> None:
    directory = ClusterDirectory()
    directory.note(name, "b", True)
    directory.note(name, "b", False)
    assert directory.override("t") == QosOverride(NEVER, False, False)
    assert directory.shared("t") == []
