"""The checker finds in a history what it is there to find, and nothing else."""

import pytest
from checker import Delivery, Disturbance, Lane, Reader, Sample, dishonest, judge, missing


def history(
    heard: list[tuple[int, int]], qos: int = 2, granted: int = 2, resent: tuple[int, ...] = (), is_ordered: bool = True
) -> tuple[list[Lane], list[Reader]]:
    """A publisher that had 0, 1 and 2 acknowledged, and 3 not; and what a reader got by which connection."""
    lane = Lane("p", "t", qos, is_ordered, published=4, resent=set(resent))
    lane.acknowledged |= {0, 1, 2} if qos else set()
    reader = Reader("r", granted)
    reader.deliveries["t"] = [Delivery(number, connection, 0.0) for number, connection in heard]
    return [lane], [reader]


def found(lanes: list[Lane], readers: list[Reader]) -> dict[str, int]:
    return {kind: len(where) for kind, where in judge(lanes, readers).violations.items()}


ALL = [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize(
    ("heard", "wrong"),
    [
        (ALL, {}),
        ([*ALL, (3, 1)], {}),
        (ALL[:2], {"lost": 1}),
        ([], {"lost": 3}),
        ([*ALL, (1, 1)], {"duplicated": 1}),
        ([*ALL, (1, 2)], {"duplicated": 1}),
        ([(0, 1), (2, 1), (1, 1)], {"reordered": 1}),
        ([(2, 1), (0, 1), (1, 1)], {"reordered": 2}),
        ([*ALL, (4, 1)], {"corrupted": 1}),
    ],
)
def test_what_is_wrong_at_qos_2_is_found(heard: list[tuple[int, int]], wrong: dict[str, int]) -> None:
    assert found(*history(heard)) == wrong


@pytest.mark.parametrize(
    ("heard", "resent", "wrong", "repeated"),
    [
        ([*ALL, (1, 1)], (1,), {}, 1),
        ([*ALL, (1, 2)], (), {}, 1),
        ([*ALL, (1, 1)], (), {"duplicated": 1}, 0),
        ([*ALL, (1, 1)], (2,), {"duplicated": 1}, 0),
    ],
)
def test_qos_1_repeats_only_what_was_sent_again_or_perhaps_not_answered(
    heard: list[tuple[int, int]], resent: tuple[int, ...], wrong: dict[str, int], repeated: int
) -> None:
    books = history(heard, qos=1, granted=1, resent=resent)
    assert found(*books) == wrong
    assert judge(*books).repeated == repeated


def test_what_a_publisher_of_qos_2_sends_again_is_not_delivered_again() -> None:
    assert found(*history([*ALL, (1, 1)], qos=2, granted=1, resent=(1,))) == {"duplicated": 1}


def test_a_repetition_is_not_out_of_order() -> None:
    assert found(*history([*ALL, (0, 2), (1, 2)], qos=1)) == {}


def test_order_is_judged_only_where_it_is_promised() -> None:
    books = history([(2, 1), (0, 1), (1, 1)], is_ordered=False)
    assert found(*books) == {}
    assert judge(*books).unordered == 2


def test_qos_0_may_be_lost_and_is_counted_but_does_not_come_twice() -> None:
    books = history([(1, 1), (0, 1)], qos=0)
    assert found(*books) == {}
    verdict = judge(*books)
    assert (verdict.qos0_published, verdict.qos0_expected, verdict.qos0_missing) == (4, 4, 2)
    assert found(*history([(1, 1), (1, 2)], qos=0)) == {"duplicated": 1}


def test_a_topic_that_nobody_publishes_on_is_found() -> None:
    lanes, readers = history(ALL)
    readers[0].deliveries["other"].append(Delivery(0, 1, 0.0))
    assert found(lanes, readers) == {"corrupted": 1}


def test_every_reader_is_judged() -> None:
    lanes, readers = history(ALL)
    readers += history(ALL[:1])[1]
    assert found(lanes, readers) == {"lost": 2}
    assert missing(lanes, readers) == 2


READY = Sample("a", 10.0, 11.0, was_ready=True, is_served=True, is_ready=True)
DEAF = READY._replace(is_served=False)
SHY = READY._replace(was_ready=False, is_ready=False)


@pytest.mark.parametrize(
    ("sample", "disturbances", "is_found"),
    [
        (READY, [], False),
        (DEAF, [], True),
        (DEAF, [Disturbance("b", 10.0, 11.0, "kill")], True),
        (DEAF, [Disturbance("a", 10.5, 20.0, "pause")], False),
        (DEAF, [Disturbance("a", 1.0, 8.0, "pause")], True),
        (DEAF._replace(is_ready=False), [], False),
        (SHY, [], True),
        (SHY, [Disturbance("a", 1.0, 8.0, "full")], False),
        (SHY._replace(is_served=False), [], False),
    ],
)
def test_readiness_is_held_against_service(sample: Sample, disturbances: list[Disturbance], is_found: bool) -> None:
    assert bool(dishonest([sample], disturbances)) == is_found


def test_of_qos_0_what_a_reader_missed_while_it_was_not_there_is_told_apart() -> None:
    lanes, readers = history([(0, 1), (3, 2)], qos=0)
    lanes[0].sent_s = {0: 1.0, 1: 5.0, 2: 20.0, 3: 30.0}
    readers[0].absences.append((6.0, 9.0))
    verdict = judge(lanes, readers)
    assert (verdict.qos0_expected, verdict.qos0_missing, verdict.qos0_away, verdict.qos0_late) == (4, 2, 1, 0)
    lanes[0].has_deadline = True
    assert judge(lanes, readers).qos0_late == 1


@pytest.mark.parametrize(("sent_s", "is_away"), [(3.9, False), (4.1, True), (6.5, True), (9.0, True), (9.1, False)])
def test_a_reader_is_away_from_before_its_connection_is_lost_until_it_is_back(sent_s: float, is_away: bool) -> None:
    assert Reader("r", 0, absences=[(6.0, 9.0)]).is_away(sent_s) is is_away
