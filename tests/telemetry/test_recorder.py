"""The recorder: nothing waits for the disk, and nothing grows without limit."""

import threading

from overlane.telemetry.recorder import Recorder
from overlane.telemetry.rows import Event, Interest


def event(at_ns: int) -> Event:
    return Event(at_ns, "link")


def test_rows_are_handed_over_by_table_in_their_order() -> None:
    recorder = Recorder()
    recorder.add(event(1))
    recorder.add(Interest(2, "a/#", "", 1))
    recorder.add(event(3))
    recorder.hand_over()
    assert recorder.take(0) == ([{"events": [event(1), event(3)], "interests": [Interest(2, "a/#", "", 1)]}], False)


def test_what_was_not_handed_over_is_not_taken() -> None:
    recorder = Recorder()
    recorder.add(event(1))
    assert recorder.take(0) == ([], False)


def test_a_full_buffer_drops_and_counts_what_comes() -> None:
    recorder = Recorder(rows_max=2)
    for at_ns in range(5):
        recorder.add(event(at_ns))
    recorder.hand_over()
    assert recorder.take(0)[0] == [{"events": [event(0), event(1)]}]
    assert (recorder.added, dict(recorder.lost)) == (2, {"events": 3})


def test_a_table_that_is_full_leaves_room_for_the_others() -> None:
    recorder = Recorder(rows_max=1)
    recorder.add(event(1))
    recorder.add(event(2))
    recorder.add(Interest(3, "a", "", 1))
    assert dict(recorder.lost) == {"events": 1}


def test_there_is_room_again_only_when_rows_are_on_disk() -> None:
    recorder = Recorder(rows_max=1)
    recorder.add(event(1))
    recorder.hand_over()
    recorder.take(0)
    recorder.hand_over()
    recorder.add(event(2))
    assert dict(recorder.lost) == {"events": 1}
    recorder.done("events", 1)
    recorder.hand_over()
    recorder.add(event(3))
    recorder.hand_over()
    assert recorder.take(0)[0] == [{"events": [event(3)]}]


def interest(at_ns: int) -> Interest:
    return Interest(at_ns, "a", "", 1)


def seconds_until_handed_over(recorder: Recorder) -> int:
    for second in range(1, 20):
        recorder.next_second()
        if recorder.take(0)[0]:
            return second
    raise AssertionError("never")


def test_few_rows_wait_until_they_are_worth_it() -> None:
    recorder = Recorder()
    recorder.add(interest(1))
    assert seconds_until_handed_over(recorder) == 5
    recorder.add(interest(2))
    recorder.worth_seconds = 0.1
    assert seconds_until_handed_over(recorder) == 1


def test_many_rows_are_handed_over_in_the_same_second_and_so_is_an_event() -> None:
    recorder = Recorder()
    for at_ns in range(1_000):
        recorder.add(interest(at_ns))
    assert seconds_until_handed_over(recorder) == 1
    recorder.add(interest(1))
    recorder.add(event(2))
    assert seconds_until_handed_over(recorder) == 1


def test_closing_wakes_the_writer_and_gives_it_all() -> None:
    recorder = Recorder()
    taken: list[object] = []
    writer = threading.Thread(target=lambda: taken.append(recorder.take(60)))
    writer.start()
    recorder.add(event(1))
    recorder.close()
    writer.join(30)
    first = taken[0]
    rest = recorder.take(0)
    assert [{"events": [event(1)]}] in (first[0], rest[0])  # type: ignore[index]
    assert rest[1]
