"""Plans as they are read: whole, or refused with what is wrong."""

import json

import msgspec
import pytest

from overlane.network.plan import PLAN_BYTES_MAX, BadPlan, Plan, read_plan

GOOD = {
    "version": 7,
    "made_ns": 1_790_000_000_000_000_000,
    "source": "seven days",
    "brokers": {"denver": {"failure": 0.004}},
    "links": [{"ends": ["denver", "seattle"], "failure": 0.03}, {"ends": ["denver", "orlando"], "failure": 0}],
    "topics": {"alarms/1": {"messages_per_second": 12.5, "bytes_per_second": 800}},
}


def read(**changed: object) -> Plan:
    return read_plan(json.dumps({**GOOD, **changed}).encode())


def test_what_is_written_is_read() -> None:
    plan = read()
    assert read_plan(msgspec.json.encode(plan)) == plan
    assert plan.failure_of("denver") == 0.004
    assert plan.failure_of("seattle") is None
    assert plan.failures_around("denver") == {"seattle": 0.03, "orlando": 0.0}
    assert plan.failures_around("seattle") == {"denver": 0.03}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"made_ns": 0}, "made_ns"),
        ({"version": -1}, "version"),
        ({"version": "seven"}, r"\$\.version"),
        ({"surprise": 1}, "surprise"),
        ({"brokers": {"denver": {"failure": 1.0}}}, r"brokers\.denver\.failure: found 1\.0"),
        ({"brokers": {"no name": {"failure": 0.1}}}, "the name of a broker"),
        ({"links": [{"ends": ["denver", "denver"], "failure": 0.1}]}, "two brokers"),
        ({"links": [{"ends": ["denver"], "failure": 0.1}]}, r"\$\.links\[0\]\.ends"),
        ({"links": [{"ends": ["a", "b"], "failure": -0.1}]}, r"links\[0\]\.failure: found -0\.1"),
        ({"links": [{"ends": ["a", "b"], "failure": 0}, {"ends": ["b", "a"], "failure": 0}]}, "a-b twice"),
        ({"topics": {"alarms/#": {"messages_per_second": 1, "bytes_per_second": 1}}}, "only in filters"),
        ({"topics": {"alarms": {"messages_per_second": -1, "bytes_per_second": 1}}}, "not negative"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(changed: dict[str, object], told: str) -> None:
    with pytest.raises(BadPlan, match=told):
        read(**changed)


@pytest.mark.parametrize("garbage", [b"", b"[]", b"\x00\xff", b"{", b" " * (PLAN_BYTES_MAX + 1)])
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(BadPlan):
        read_plan(garbage)
