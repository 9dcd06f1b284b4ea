"""What bench/lone.py counts: opcodes of the interpreter, which no load of the machine changes."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _lone_row import LoneRow

pytestmark = pytest.mark.usefixtures("bench_folder")

WARM = 100
MESSAGES = 101


def costs(row: "LoneRow") -> dict[str, float]:
    """Opcodes of a message at each of three brokers on its way. The least of many: pings, timers and
    other things that the brokers do now and then are not the message's."""
    from lone import one, opcodes

    for _ in range(WARM):
        one(row, lambda _, work: work())
    counted = [opcodes(row, messages=1) for _ in range(MESSAGES)]
    return {broker: min(counts[broker].total() for counts in counted) for broker in "abc"}


def is_recorded_at_c(row: "LoneRow") -> bool:
    """Whether all that came is, before long."""
    from _lone_row import LINKED_WITHIN, TOPIC, Counting

    broker = row.brokers["c"]
    (counting,) = (one for one in broker.driver.observing.observers if isinstance(one, Counting))
    count, until = 0, broker.clock.now() + LINKED_WITHIN
    while count < WARM + MESSAGES and broker.clock.now() < until:
        row.settle()
        count += sum(rate.messages_overlay for rate in counting.rates.rows([TOPIC], 0, 1))
    return count >= WARM + MESSAGES


def test_a_message_is_not_held_up_by_being_recorded() -> None:
    from _lone_row import LoneRow

    recorded, unrecorded = LoneRow(), LoneRow(is_recorded=False)
    assert costs(recorded) == pytest.approx(costs(unrecorded), rel=0.01)
    assert is_recorded_at_c(recorded)
