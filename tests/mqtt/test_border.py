"""What may not leave the broker is counted and reported, and its publisher is told where MQTT 5 can say so."""

import mqtt5
import pytest
from clients import Bench, Client

from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.counters import Refusal
from overlane.pubsub.notices import RefusalNotice

TOLD = "private/1 may not leave for denver"


class Bordered(Alone):
    """Denver needs everything, and gets only what is public. So do four others of what is `popular`."""

    is_alone = False
    has_border = True

    def carries(self, topic: str) -> bool:
        return topic.startswith("public")

    def withheld_from(self, topic: str) -> tuple[str, ...]:
        if topic.startswith("popular"):
            return "denver", "boise", "orlando", "seattle", "dallas"
        return () if topic.startswith("public") else ("denver",)


@pytest.fixture
def bench() -> Bench:
    return Bench(uplink=Bordered())


def refused(bench: Bench) -> int:
    return bench.server.state.counters.refused[Refusal.BORDER]


def reported(bench: Bench) -> list[str]:
    return [one.told for one in bench.server.state.notices.take()[0] if isinstance(one, RefusalNotice)]


def answered(client: Client, topic: str, qos: int = 1) -> tuple[int | None, str | None]:
    """Reason code and reason string."""
    client.saw()
    code = client.publish(topic, b"x", qos=qos)
    (ack,) = client.saw(mqtt5.PubAckPacket if qos == 1 else mqtt5.PubRecPacket)
    return code, ack.reason_str


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_is_told_that_nobody_gets_its_message_because_it_may_not_leave(bench: Bench, qos: int) -> None:
    publisher = bench.client("publisher")
    assert answered(publisher, "private/1", qos) == (0x10, TOLD)
    assert answered(publisher, "public/1", qos) == (0, None)
    assert refused(bench) == 1


def test_a_publisher_is_told_which_brokers_get_nothing_when_clients_here_do(bench: Bench) -> None:
    bench.client("subscriber").subscribe("#")
    publisher = bench.client("publisher")
    assert answered(publisher, "private/1") == (0, TOLD)
    assert answered(publisher, "popular/1") == (0, "popular/1 may not leave for denver, boise, orlando and 2 more")


def test_a_client_that_wants_no_reasons_and_one_of_mqtt_3_get_plain_acknowledgements(bench: Bench) -> None:
    quiet = bench.client("quiet", request_problem_info=False)
    assert answered(quiet, "private/1") == (0x10, None)
    old = bench.client("old", version=4)
    assert old.publish("private/1", b"x", qos=1) == 0
    assert refused(bench) == 2


@pytest.mark.parametrize("qos", [0, 1])
def test_every_message_is_counted_and_reported_also_those_that_would_take_the_fast_path(bench: Bench, qos: int) -> None:
    subscriber, publisher = bench.client("subscriber"), bench.client("publisher")
    subscriber.subscribe("#")
    reported(bench)
    for _ in range(5):
        publisher.publish("private/1", b"x", qos=qos)
        publisher.publish("public/1", b"x", qos=qos)
    assert refused(bench) == 5
    assert reported(bench) == [TOLD] * 5
    assert len(subscriber.got()) == 10
