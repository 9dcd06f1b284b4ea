"""Mixed runs: messages of several topics in one body, joined while a turn lasts."""

from collections.abc import Iterator

from handwired import Overlay

from overlane.core.events import PublishResult
from overlane.core.federation import Federation, Passage
from overlane.core.qos import QosClass
from overlane.core.wire.mixed_run import MixedRun, Split, topics_in
from overlane.core.wire.parcel import MIXED_RUN, PARCEL_BYTES_MAX, Message

FLAGS = 0x10
LINE = {"a-b": 10}


def lettered(flags: int, body: bytes) -> Iterator[Message]:
    """A protocol whose topics are letters, with a digit as the message."""
    for at in range(4, len(body), 2):
        yield chr(body[at]), flags, body[at + 1 : at + 2]


def overlay(
    classes: dict[str, QosClass] | None = None, federation: Federation | None = None, split: Split = lettered
) -> Overlay:
    net = Overlay(LINE, classes or {}, of={"b": {"federation": federation}} if federation else {}, split=split)
    net.run(3_000)
    net.subscribe("b", "#")
    net.run(500)
    return net


def send(net: Overlay, encoded: bytes, qos: QosClass = QosClass(), alone: tuple[int, bytes] | None = None) -> None:  # noqa: B008
    topics = [chr(letter) for letter in encoded[::2]]
    result = net.brokers["a"].send_mixed_run(topics, encoded, len(encoded) // 2, FLAGS, alone, qos, net.now)
    assert result is PublishResult.ACCEPTED


def end_turn(net: Overlay) -> None:
    net.turn("a", [])
    net.run(500)


def got(net: Overlay) -> list[tuple[str, bytes]]:
    """What has arrived at b since the last look."""
    found = [(topic, body) for topic, body, _ in net.got("b")]
    net.effects["b"].clear()
    return found


def test_a_message_that_stays_alone_is_one_and_more_are_a_mixed_run_of_their_topics() -> None:
    mixed_run = MixedRun(FLAGS)
    mixed_run.add(["t"], b"t1", 1, (0x40, b"1"))
    assert mixed_run.message() == ("t", 0x40, b"1")
    mixed_run.add(["t"], b"t2", 1, (0x40, b"2"))
    assert mixed_run.message() == ("t", FLAGS, b"\0\0\0\2t1t2")
    mixed_run.add(["u", "t"], b"u3u4t5", 3, None)
    topic, flags, body = mixed_run.message()
    assert (topic, flags, body) == (MIXED_RUN, FLAGS, b"\0\0\0\5t1t2u3u4t5")
    assert list(topics_in(["v", topic, "u"])) == ["v", "t", "u"]


def test_a_mixed_run_takes_what_is_of_its_kind_and_fits_into_a_parcel() -> None:
    mixed_run = MixedRun(FLAGS)
    mixed_run.add(["t", "u"], bytes(PARCEL_BYTES_MAX - 1), 9, None)
    assert (mixed_run.takes(FLAGS, 1), mixed_run.takes(FLAGS, 2), mixed_run.takes(FLAGS + 1, 1)) == (True, False, False)


def test_what_is_sent_in_a_turn_arrives_as_one_and_keeps_its_place_among_others_of_its_flow() -> None:
    net = overlay()
    send(net, b"t1u1")
    send(net, b"v1")
    net.brokers["a"].send("t", b"2", net.now, 0, QosClass())
    send(net, b"t3u3")
    end_turn(net)
    assert got(net) == [
        (MIXED_RUN, b"\0\0\0\3t1u1v1"),
        ("t", b"2"),
        (MIXED_RUN, b"\0\0\0\2t3u3"),
    ]


def test_a_single_message_arrives_as_itself() -> None:
    net = overlay()
    send(net, b"t1", alone=(0x40, b"1"))
    end_turn(net)
    assert got(net) == [("t", b"1")]


def test_at_a_border_each_message_of_a_mixed_run_is_judged_by_its_topic() -> None:
    net = overlay(federation=Federation(enter=(Passage("a", ("t", "v")),)))
    send(net, b"t1u1u2v1")
    end_turn(net)
    assert got(net) == [("t", b"1"), ("v", b"1")]
    assert net.brokers["b"].counters["refused_at_border"] == 2


def test_history_of_a_topic_is_kept_of_what_comes_in_mixed_runs() -> None:
    net = overlay({"u": QosClass(history=1)})
    send(net, b"t1u1v1")
    end_turn(net)
    assert got(net) == [("t", b"1"), ("u", b"1"), ("v", b"1")]
    send(net, b"t2v2")
    end_turn(net)
    assert got(net) == [(MIXED_RUN, b"\0\0\0\2t2v2")]
    net.subscribe("b", "+", "late")
    end_turn(net)
    assert ("u", b"1") in got(net)


def test_missing_parcels_are_told_with_a_topic_of_their_flow() -> None:
    net = overlay()
    send(net, b"t1u1")
    end_turn(net)
    assert net.brokers["b"].missing() == [("a", "t", 0)]


def test_a_mixed_run_that_cannot_be_told_apart_passes_no_border() -> None:
    def broken(flags: int, body: bytes) -> Iterator[Message]:
        yield from lettered(flags, body[:6])
        raise ValueError("not what it should be")

    net = overlay(federation=Federation(enter=(Passage("a", ("t",)),)), split=broken)
    send(net, b"t1u2")
    net.brokers["a"].send("t", b"3", net.now, 0, QosClass())
    end_turn(net)
    assert got(net) == [("t", b"3")]


def test_topics_that_were_in_mixed_runs_keep_their_order_when_they_move_to_another_flow() -> None:
    net = overlay()
    send(net, b"t1u1")
    net.brokers["a"].send("u", b"2", net.now, 0, QosClass(reliable=True))
    end_turn(net)
    assert got(net) == [(MIXED_RUN, b"\0\0\0\2t1u1"), ("u", b"2")]
