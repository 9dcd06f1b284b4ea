"""Mediation in a broker: acknowledgements, records, crashes, dead letters, limits, the fast paths."""

from dataclasses import replace
from typing import Any

import pytest
from clients import Bench, Client, Got

from overlane.core.units import MS, SECOND
from overlane.mediation.functions import FunctionMessage
from overlane.mediation.mediation import Mediation
from overlane.mediation.rule import MediationRule
from overlane.pubsub.access import Rule
from overlane.pubsub.counters import Drop
from overlane.pubsub.publishing.mediating import TABLE

SLOW = MediationRule(name="slow", topic="t/#", every_ns=10 * SECOND)
CALL = MediationRule(name="call", topic="t/#", call="here:function", call_within_ns=100 * MS)
CELSIUS = MediationRule(
    name="celsius", topic="raw/#", set_fields=(("c", "(f - 32) / 1.8"),), remove_fields=("f",), rename="clean/{2-}"
)


def reader(bench: Bench, topic: str = "#", **wishes: Any) -> Client:
    client = bench.client("reader", **wishes)
    client.subscribe(topic, qos=1)
    return client


def payloads(client: Client) -> list[bytes]:
    return [one.payload for one in client.got()]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_is_changed_before_anybody_gets_it(qos: int) -> None:
    bench = Bench(mediation=[CELSIUS])
    ours = reader(bench)
    writer = bench.client("writer")
    for _ in range(3):  # none of them takes a fast path
        assert writer.publish("raw/1", b'{"f": 68.0}', qos=qos) in ({0} if qos else {None})
    assert ours.got() == 3 * [Got("clean/1", b'{"c":20.0}', qos=min(qos, 1))]


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_dropped_is_acknowledged_and_reaches_nobody(qos: int) -> None:
    bench = Bench(mediation=[MediationRule(name="no", topic="t", where="v < 3", drop=True)])
    ours, writer = reader(bench), bench.client("writer")
    for value in range(5):
        assert writer.publish("t", b'{"v": %d}' % value, qos=qos) in (None, 0)
    assert payloads(ours) == [b'{"v": 3}', b'{"v": 4}']
    assert bench.server.state.counters.mediation_dropped == 3
    assert not bench.server.state.counters.dropped[Drop.MEDIATION]


def test_a_rule_that_fails_makes_a_dead_letter_and_others_go_on() -> None:
    bench = Bench(mediation=[CELSIUS])
    dead, ours, writer = bench.client("dead"), reader(bench, "clean/#"), bench.client("writer")
    dead.subscribe("$dead-letter/#", qos=1)
    assert writer.publish("raw/1", b"no JSON", qos=1) == 0
    assert writer.publish("raw/2", b'{"f": 32}', qos=1) == 0
    [letter] = [one for one in dead.saw() if getattr(one, "topic", "").startswith("$dead-letter")]
    assert (letter.topic, letter.payload) == ("$dead-letter/raw/1", b"no JSON")
    told = dict(letter.user_properties)
    assert told["overlane-client"] == "writer"
    assert told["overlane-reason"].startswith("rule celsius: the payload is not json")
    assert [one.topic for one in ours.got()] == ["clean/2"]


def test_rights_are_those_of_the_topic_that_the_client_names() -> None:
    rules = (Rule(user="anonymous", publish=("raw/#",), subscribe=("#",)),)
    bench = Bench(mediation=[CELSIUS], rules=rules)
    ours, writer = reader(bench), bench.client("writer")
    assert writer.publish("clean/1", b'{"c": 1}', qos=1) == 0x87
    assert writer.publish("raw/1", b'{"f": 32}', qos=1) == 0
    assert [one.topic for one in ours.got()] == ["clean/1"]


def test_a_retained_message_is_kept_as_it_was_made_and_taken_away_by_its_old_name() -> None:
    bench = Bench(mediation=[CELSIUS])
    writer = bench.client("writer")
    writer.publish("raw/1", b'{"f": 32}', qos=1, retain=True)
    assert [one.topic for one in reader(bench).got() if not one.topic.startswith("$")] == ["clean/1"]
    writer.publish("raw/1", b"", qos=1, retain=True)
    assert bench.server.state.retained.get("clean/1") is None


# Messages that wait for the end of an interval


def test_the_latest_of_an_interval_passes_at_its_end() -> None:
    bench = Bench(mediation=[SLOW])
    ours, writer = reader(bench), bench.client("writer")
    for value in range(4):
        assert writer.publish("t/1", b"%d" % value, qos=1) == 0
    assert payloads(ours) == [b"0"]
    assert bench.tables()[TABLE] == 1
    bench.wait(10)
    assert payloads(ours) == [b"3"]
    assert TABLE not in bench.tables()
    writer.publish("t/1", b"4", qos=1)
    assert payloads(ours) == [], "the next interval has begun"
    bench.wait(10)
    assert payloads(ours) == [b"4"]
    bench.wait(10)
    writer.publish("t/1", b"5", qos=1)
    assert payloads(ours) == [b"5"]


def test_a_held_message_of_qos_1_outlives_a_crash_and_one_of_qos_0_does_not() -> None:
    bench = Bench(mediation=[SLOW])
    reader(bench, expiry=600)
    writer = bench.client("writer")
    writer.publish("t/1", b"0", qos=1)
    writer.publish("t/1", b"kept", qos=1)
    writer.publish("t/2", b"1", qos=1)
    writer.publish("t/2", b"lost")
    bench.crash()
    ours = bench.client("reader", expiry=600, clean=False)
    assert payloads(ours) == [], "it has acknowledged the first ones before"
    bench.wait(10)
    assert payloads(ours) == [b"kept"]
    assert TABLE not in bench.tables()


def test_the_acknowledgement_of_a_held_message_waits_for_the_store() -> None:
    bench = Bench(mediation=[SLOW])
    writer = bench.client("writer", expiry=600)
    writer.publish("t/1", b"0", qos=1)
    bench.is_store_slow = True
    assert writer.publish("t/1", b"1", qos=1) is None
    bench.crash()
    assert TABLE not in bench.tables(), "it was not acknowledged: its client sends it again"


def test_of_those_that_wait_there_is_a_limit() -> None:
    bench = Bench(mediation=[SLOW], queue_messages=3)
    writer = bench.client("writer")
    for number in range(6):
        writer.publish(f"t/{number}", b"first", qos=1)
    answers = [writer.publish(f"t/{number}", b"second", qos=1) for number in range(6)]
    assert answers == [0, 0, 0, 0x97, 0x97, 0x97]
    assert writer.publish("t/0", b"third", qos=1) == 0, "it takes the place of another one"
    writer.publish("t/5", b"x")
    assert bench.server.state.counters.dropped[Drop.QUEUE_FULL] == 1


def test_a_held_message_expires() -> None:
    bench = Bench(mediation=[SLOW])
    ours, writer = reader(bench), bench.client("writer")
    writer.publish("t", b"0")
    writer.publish("t", b"1", message_expiry_interval=5)
    bench.wait(11)
    assert payloads(ours) == [b"0"]


# Functions


def returned(bench: Bench, message: FunctionMessage | None, failure: str = "", at: int = 0) -> None:
    number = bench.calls.pop(at).number
    bench.server.pubsub.mediating.returned(number, message, failure, bench.now)
    bench.settle()


def test_a_message_goes_on_as_its_function_returns_it() -> None:
    bench = Bench(mediation=[CALL, replace_rule("mark", set_properties=(("seen", "yes"),))])
    ours, writer = reader(bench), bench.client("writer")
    assert writer.publish("t/1", b"a", qos=1) == 0
    assert ours.got() == []
    [call] = bench.calls
    assert (call.function, call.within_ns, call.message.payload) == ("here:function", 100 * MS, b"a")
    returned(bench, FunctionMessage(topic="u/1", payload=b"A", properties=[("x", "y")]))
    [packet] = [one for one in ours.saw() if getattr(one, "topic", "") == "u/1"]
    assert (packet.payload, packet.user_properties) == (b"A", [("x", "y"), ("seen", "yes")])
    assert TABLE not in bench.tables()


def replace_rule(name: str, **fields: Any) -> MediationRule:
    return MediationRule(name=name, **fields)


def test_a_function_drops_or_fails() -> None:
    bench = Bench(mediation=[CALL])
    dead, ours, writer = bench.client("dead"), reader(bench), bench.client("writer")
    dead.subscribe("$dead-letter/#", qos=1)
    for _ in range(3):
        writer.publish("t/1", b"a", qos=1)
    returned(bench, None)
    returned(bench, None, "ValueError: no")
    returned(bench, FunctionMessage(topic="$SYS/x", payload=b""))
    assert ours.got() == []
    letters = [dict(one.user_properties)["overlane-reason"] for one in dead.saw() if hasattr(one, "user_properties")
               and getattr(one, "topic", "") == "$dead-letter/t/1"]  # fmt: skip
    assert letters == ["rule call: ValueError: no", "rule call: the topic $SYS/x cannot be published on"]
    assert TABLE not in bench.tables()


def test_a_call_is_made_again_after_a_crash_and_its_result_is_published_once() -> None:
    bench = Bench(mediation=[CALL])
    reader(bench, expiry=600)
    writer = bench.client("writer")
    writer.publish("t/1", b"a", qos=1)
    writer.publish("t/1", b"b", qos=1)
    bench.calls.clear()
    bench.crash()
    assert [one.message.payload for one in bench.calls] == [b"a", b"b"]
    bench.is_store_slow = True
    returned(bench, bench.calls[0].message)
    bench.crash()  # before the result is on disk
    bench.is_store_slow = False
    bench.calls = bench.calls[-2:]
    assert [one.message.payload for one in bench.calls] == [b"a", b"b"]
    returned(bench, bench.calls[0].message)
    returned(bench, bench.calls[0].message)
    bench.crash()
    assert payloads(bench.client("reader", expiry=600, clean=False)) == [b"a", b"b"]


def test_a_message_whose_rule_is_gone_passes_as_it_is() -> None:
    bench = Bench(mediation=[CALL])
    reader(bench, expiry=600)
    bench.client("writer").publish("t/1", b"a", qos=1)
    bench.settings = replace(bench.settings, mediation=None)
    bench.crash()
    bench.wait(1)
    assert payloads(bench.client("reader", expiry=600, clean=False)) == [b"a"]
    assert TABLE not in bench.tables()


# Reload, and what rules do not touch


def test_new_rules_hold_for_topics_that_were_on_the_fast_path() -> None:
    bench = Bench()
    ours, writer = reader(bench), bench.client("writer")
    for _ in range(3):
        writer.publish("raw/1", b'{"f": 32}')
    assert {one.topic for one in ours.got()} == {"raw/1"}
    bench.settings = replace(bench.settings, mediation=Mediation([CELSIUS]))
    bench.server.pubsub.reconfigure(bench.settings)
    for _ in range(3):
        writer.publish("raw/1", b'{"f": 32}')
    assert {one.topic for one in ours.got()} == {"clean/1"}


def test_topics_without_rules_keep_the_fast_path() -> None:
    bench = Bench(mediation=[CELSIUS])
    reader(bench)
    writer = bench.client("writer")
    for topic in ("raw/1", "other"):
        for _ in range(2):
            writer.publish(topic, b"{}")
    assert writer.wire is not None
    assert [one.topic for one in writer.wire.connection.entries.values()] == ["other"]


def test_a_refused_message_finds_the_rules_as_it_left_them() -> None:
    bench = Bench(mediation=[MediationRule(name="calm", topic="t", deadband=("v", 1.0))], retained_messages=1)
    writer = bench.client("writer")
    writer.publish("other", b"x", qos=1, retain=True)
    assert writer.publish("t", b'{"v": 1}', qos=1, retain=True) == 0x97
    bench.client("writer2").publish("other", b"", qos=1, retain=True)
    assert writer.publish("t", b'{"v": 1}', qos=1, retain=True) in (0, 0x10), "the same value is not a repetition"
    assert bench.server.state.retained.get("t") is not None
