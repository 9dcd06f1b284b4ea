"""The sample of deliveries: fair, bounded, and honest about what each row stands for."""

from collections import Counter
from random import Random

import pytest
from station import START, Station

from overlane.core.events import Deliver
from overlane.core.qos import QosClass, QosTable, Routing
from overlane.core.units import MS, NEVER, SECOND
from overlane.mqtt.arrival_counts import tally
from overlane.mqtt.codec import writing
from overlane.mqtt.runs import pack_lone, pack_run
from overlane.pubsub.cluster.arrivals import Mixed
from overlane.pubsub.cluster.envelope import PROPERTIES, pack
from overlane.pubsub.message import Message
from overlane.telemetry.arrivals import ArrivalCounter
from overlane.telemetry.deliveries import DeliverySample
from overlane.telemetry.message_paths import MessagePaths
from overlane.telemetry.rows import DeliveryRow, TopicRate

EVERYBODY = ("mqtt",)
ALARMS = QosClass(deadline_ns=60 * MS, reliable=True, routing=Routing.MULTIPATH)


class Bay:
    """Where messages of other brokers arrive."""

    def __init__(self, rows_per_second: int = 100, seed: int = 1) -> None:
        table = QosTable({"alarms": ALARMS})
        self.station = Station(table)
        self.rows: list[DeliveryRow] = []
        self.sample = DeliverySample(
            lambda: table,
            MessagePaths(self.station.core),
            self.rows.append,
            lambda: START,
            rows_per_second,
            Random(seed),
        )
        self.arrivals = ArrivalCounter(self.station.rates, self.sample)

    def arrive(
        self, *messages: tuple[str, int, bytes], age_ns: int = 5 * MS, deadline_ns: int = NEVER, nobody: str = ""
    ) -> None:
        wanted = {topic: EVERYBODY for topic, _, _ in messages if topic != nobody}
        self.arrivals.delivered(tally(Deliver(list(messages), wanted, "denver", age_ns, deadline_ns)))

    def tallies(self) -> dict[str, tuple[int, int]]:
        return {row.topic: (row.messages_overlay, row.bytes_overlay) for row in self.station.sampled(TopicRate)}


# What a row says


def test_a_row_says_what_came_from_where_how_old_and_whether_in_time() -> None:
    bay = Bay()
    bay.arrive(("alarms", 0, b"12345"), age_ns=59 * MS, deadline_ns=60 * MS)
    bay.arrive(("alarms", 0, b""), age_ns=61 * MS, deadline_ns=60 * MS)
    bay.arrive(("reports", 0, b"x"), age_ns=9 * MS)
    late = DeliveryRow(START, "alarms", "denver", 61 * MS, 60 * MS, False, True, "multipath", 0, None, None, 1)
    assert bay.rows == [
        late._replace(age_ns=59 * MS, in_time=True, size_bytes=5),
        late,
        DeliveryRow(START, "reports", "denver", 9 * MS, None, None, False, "adaptive", 1, None, None, 1),
    ]


def test_a_deadline_that_was_stretched_on_the_way_is_judged_by_what_the_topic_asks() -> None:
    bay = Bay()
    bay.arrive(("alarms", 0, b"x"), age_ns=70 * MS, deadline_ns=200 * MS)
    assert [(row.deadline_ns, row.in_time) for row in bay.rows] == [(60 * MS, False)]


def test_a_mixed_run_makes_one_row_of_any_of_its_messages_and_counts_each_for_its_topic() -> None:
    looked_at = Counter[tuple[str, int]]()
    for seed in range(40):
        bay = Bay(seed=seed)
        effect = Deliver([("", 0, b"")], {"": EVERYBODY}, "denver", 5 * MS, NEVER)
        bay.arrivals.delivered(tally(effect, [Mixed(["a", "b", "a"], [1, 20, 300])]))
        (row,) = bay.rows
        assert row.weight == 3
        looked_at[row.topic, row.size_bytes] += 1
        assert bay.tallies() == {"a": (2, 301), "b": (1, 20)}
    assert set(looked_at) == {("a", 1), ("b", 20), ("a", 300)}


def test_a_run_counts_as_many_messages_as_it_holds_and_makes_one_row() -> None:
    bay = Bay()
    flags, body = pack_run(b"\x30\x05\x00\x01tab" * 40, 40, is_v5=False)
    bay.arrive(("t", flags, body))
    assert [(row.weight, row.size_bytes) for row in bay.rows] == [(40, 2)]
    assert bay.tallies() == {"t": (40, 80)}


def test_a_run_that_claims_more_messages_than_it_can_hold_is_not_believed() -> None:
    bay = Bay()
    flags, body = pack_run(b"\x30\x05\x00\x01tab", 4_000_000_000, is_v5=False)
    bay.arrive(("t", flags, body))
    assert bay.tallies() == {"t": (1, 2)}


@pytest.mark.parametrize("size", [0, 1, 300])
@pytest.mark.parametrize("is_v5", [False, True])
def test_the_bytes_of_messages_are_those_of_their_payloads_whichever_way_they_come(is_v5: bool, size: int) -> None:
    payload = bytes(size)
    packet = writing.publish(5 if is_v5 else 4, b"t", payload, 0, False, False, 0, b"")
    with_properties = Message("t", payload, 1, encoded=b"\x03\x00\x04text", expires_ns=START + 60 * SECOND)
    for flags, body in (
        pack_run(packet * 4, 4, is_v5),
        pack_lone(payload, is_v5),
        pack(Message("t", payload, 1), START),
        pack(with_properties, START),
    ):
        bay = Bay()
        bay.arrive(("t", flags, body))
        ((messages, size_bytes),) = bay.tallies().values()
        assert size_bytes == messages * size


def test_a_message_whose_properties_cannot_be_read_is_counted_all_the_same() -> None:
    bay = Bay()
    for body in (b"", b"\xff\xff\xff\xff\xff", b"\x7fx"):
        bay.arrive(("t", PROPERTIES, body))
    assert bay.tallies() == {"t": (3, 5)}


def test_messages_for_a_shared_subscription_are_told_by_their_topic_and_retained_ones_not_at_all() -> None:
    bay = Bay()
    bay.arrive(("$share/g/seattle/0a0b/a/b", 0, b"x"), ("$retained/a", 0, b"x"), ("$share/broken", 0, b"x"))
    assert [row.topic for row in bay.rows] == ["a/b"]
    assert bay.tallies() == {"a/b": (1, 1)}


def test_messages_that_nobody_here_subscribes_to_are_not_counted() -> None:
    bay = Bay()
    bay.arrive(("a", 0, b"x"), ("b", 0, b"x"), nobody="b")
    assert bay.tallies() == {"a": (1, 1)}


# Which are looked at


def test_all_are_looked_at_while_they_are_few() -> None:
    bay = Bay(rows_per_second=100)
    for _ in range(5):
        for _ in range(100):
            bay.arrive(("t", 0, b"x"))
        bay.sample.next_second()
    assert (len(bay.rows), {row.weight for row in bay.rows}) == (500, {1})


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_bounded_and_stand_for_all_messages(seed: int) -> None:
    bay = Bay(rows_per_second=100, seed=seed)
    sent, made = Counter[str](), []
    luck = Random(seed)
    for _ in range(30):
        before = len(bay.rows)
        for _ in range(5_000):
            topic = luck.choice("aaab")
            sent[topic] += 1
            bay.arrive((topic, 0, b"x"))
        made.append(len(bay.rows) - before)
        bay.sample.next_second()
    assert max(made[1:]) <= 200
    assert made[0] <= 1_400  # until the first second is over the sample halves whenever there are too many
    told = Counter[str]()
    for row in bay.rows:
        told[row.topic] += row.weight
    for topic, count in sent.items():
        assert told[topic] == pytest.approx(count, rel=0.15), (topic, seed)


@pytest.mark.parametrize("seed", range(3))
def test_topics_that_take_turns_are_all_seen(seed: int) -> None:
    bay = Bay(rows_per_second=50, seed=seed)
    for _ in range(20):
        for _ in range(1_000):
            bay.arrive(("a", 0, b"x"), ("b", 0, b"x"))
        bay.sample.next_second()
    share = sum(row.weight for row in bay.rows if row.topic == "a") / sum(row.weight for row in bay.rows)
    assert share == pytest.approx(0.5, abs=0.08), seed


@pytest.mark.parametrize("seed", range(3))
def test_runs_of_any_length_stand_for_what_they_hold(seed: int) -> None:
    bay = Bay(rows_per_second=50, seed=seed)
    luck, sent = Random(seed), Counter[str]()
    for _ in range(40):
        for _ in range(200):
            topic, count = luck.choice([("short", 1), ("long", luck.randint(50, 500))])
            flags, body = pack_run(b"\x30\x05\x00\x01tab" * count, count, is_v5=False)
            bay.arrive((topic, flags, body))
            sent[topic] += count
        bay.sample.next_second()
    told = Counter[str]()
    for row in bay.rows:
        told[row.topic] += row.weight
    assert told["long"] == pytest.approx(sent["long"], rel=0.1), seed


def test_the_sample_gets_denser_again_when_less_comes() -> None:
    bay = Bay(rows_per_second=10)
    for _ in range(3):
        for _ in range(10_000):
            bay.arrive(("t", 0, b"x"))
        bay.sample.next_second()
    for _ in range(20):
        bay.sample.next_second()
    bay.rows.clear()
    for _ in range(10):
        bay.arrive(("t", 0, b"x"))
    assert [row.weight for row in bay.rows] == [1] * 10


def test_a_rate_of_nothing_makes_no_rows_and_the_topics_are_counted_all_the_same() -> None:
    bay = Bay(rows_per_second=0)
    for _ in range(10):
        bay.arrive(("t", 0, b"x"))
    bay.sample.next_second()
    assert (bay.rows, bay.tallies()) == ([], {"t": (10, 10)})
    bay.sample.rows_per_second = 5
    bay.arrive(("t", 0, b"x"))
    assert [row.weight for row in bay.rows] == [1]
