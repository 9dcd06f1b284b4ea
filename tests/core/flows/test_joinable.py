"""A single message in a draft: it stays as it is, or becomes the first of a mixed run, and never changes its place."""

from overlane.core.flows.outflow import Outflow
from overlane.core.qos import QosClass
from overlane.core.wire.parcel import Message

FLAGS = 0x10
SINGLE: Message = ("a", 0x40, b"1")
ENCODED = b"<a1>"


def flow_with_a_single_message() -> Outflow:
    flow = Outflow((1, 1), QosClass(), ("b",))
    flow.draft.append(SINGLE)
    flow.joinable = SINGLE, FLAGS, ENCODED
    return flow


def test_a_message_that_joins_a_single_one_makes_a_mixed_run_of_both() -> None:
    flow = flow_with_a_single_message()
    flow.open_mixed_run(FLAGS, 4).add(("a",), b"<a2>", 1, (0x40, b"2"))
    flow.close_mixed_run()
    assert flow.draft == [("a", FLAGS, (2).to_bytes(4) + b"<a1><a2>")]


def test_a_message_of_another_protocol_version_does_not_join_it() -> None:
    flow = flow_with_a_single_message()
    flow.open_mixed_run(FLAGS | 0x20, 4).add(("a",), b"<a2>", 1, (0x60, b"2"))
    flow.close_mixed_run()
    assert flow.draft == [SINGLE, ("a", 0x60, b"2")]


def test_nothing_joins_it_once_another_message_is_behind_it() -> None:
    flow = flow_with_a_single_message()
    other: Message = ("a", 0, b"other")
    flow.draft.append(other)
    flow.open_mixed_run(FLAGS, 4).add(("a",), b"<a2>", 1, (0x40, b"2"))
    flow.close_mixed_run()
    assert flow.draft == [SINGLE, other, ("a", 0x40, b"2")]
