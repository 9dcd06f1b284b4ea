"""User properties of publishers that require something of paths: they only tighten."""

import pytest
from clients import Bench

from overlane.core.qos import QosClass
from overlane.core.requirements import Requirements
from overlane.pubsub.publishing.qos_override import REQUIRED_MAX, BadOverride, apply_override, read_override

FILE = QosClass(requires=Requirements(avoid=("broker:a",), loss_max=0.1))


def test_a_publisher_can_ask_for_more_and_never_for_less() -> None:
    asked = read_override([("overlane-encrypted", "true"), ("overlane-avoid", "domain:x, broker:b")])
    both = Requirements(True, (), ("broker:a", "broker:b", "domain:x"), 0.1)
    assert apply_override(FILE, asked).requires == both
    assert apply_override(FILE, read_override([("overlane-avoid", "broker:a")])) is FILE
    assert apply_override(FILE, read_override([])) is FILE


@pytest.mark.parametrize(
    ("name", "value"),
    [("overlane-encrypted", "false"), ("overlane-avoid", "b"), ("overlane-avoid", "broker:"), ("overlane-avoid", "")],
)
def test_what_cannot_be_read_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadOverride, match=name):
        read_override([(name, value)])


def test_the_broker_refuses_what_it_could_not_keep() -> None:
    bench = Bench()
    pub = bench.client("pub")
    encrypted = [("overlane-encrypted", "true")]
    assert pub.publish("t", b"x", qos=1, user_properties=encrypted) == 0x10
    assert pub.publish("t", b"x", qos=1, retain=True, user_properties=encrypted) == 0x83
    assert pub.subscribe("t", user_properties=encrypted) == [0x83]
    for number in range(REQUIRED_MAX - 1):
        assert pub.publish("t", b"x", qos=1, user_properties=[("overlane-avoid", f"broker:b{number}")]) == 0x10
    assert pub.publish("t", b"x", qos=1, user_properties=[("overlane-avoid", "broker:more")]) == 0x83
    assert pub.publish("t", b"x", qos=1, user_properties=encrypted) == 0x10
