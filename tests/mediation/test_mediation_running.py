"""Mediation in running brokers: across two of them, with functions in their own process, and over kill -9."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqttinbox import MqttInbox, publish
from typer.testing import CliRunner
from webclients import WebBroker, ask

from overlane.cli.main import app
from overlane.errors import ConfigError
from overlane.network import format_network, parse_network
from waiting import eventually

RULES = """
[[mediation]]
name = "celsius"
topic = "raw/#"
where = "fahrenheit IS NOT NULL"
set_fields = { celsius = "(fahrenheit - 32) / 1.8", "place.kind" = "$level.2", ok = true }
remove_fields = ["fahrenheit"]
set_properties = { unit = "C" }
remove_properties = ["secret"]
rename = "clean/{2-}"

[[mediation]]
name = "cbor"
topic = "cbor/#"
encode = "cbor"

[[mediation]]
name = "slow"
topic = "slow/#"
every = "2s"

[[mediation]]
name = "function"
topic = "function/#"
call = "mediation_functions:change"
call_within = "2s"
"""
FUNCTIONS = """
import os
import time


def change(message):
    print("this must not disturb anything")
    if message.payload == b"stop":
        while True:
            time.sleep(1)
    if message.payload == b"die":
        os._exit(3)
    if message.payload == b"fail":
        raise ValueError("no")
    if message.payload == b"drop":
        return None
    message.topic = "returned/" + message.topic
    message.properties.append(("by", "function"))
    message.payload = message.payload.upper()
    return message
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebBroker]:
    directory = tmp_path_factory.mktemp("mediation")
    (directory / "mediation_functions.py").write_text(FUNCTIONS)
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(directory), prepend=":")
    one = WebBroker(directory, RULES)
    one.start()
    yield one
    one.kill()
    patch.undo()


def test_messages_of_mqtt_and_http_are_changed_alike(broker: WebBroker) -> None:
    with MqttInbox(broker.port, "clean/#", qos=1) as inbox:
        headers = [("Overlane-Property", "secret=x"), ("Overlane-Property", "a=b")]
        assert ask(broker.http, "POST", "/topics/raw/web", b'{"fahrenheit": 212}', headers).status == 204
        publish(broker.port, "raw/mqtt", b'{"fahrenheit": 32}')
        eventually(lambda: len(inbox.messages) == 2, "both have come")
        first, second = inbox.messages
        assert (first.topic, json.loads(first.payload)) == (
            "clean/web",
            {"celsius": 100, "place": {"kind": "web"}, "ok": True},
        )
        assert first.properties.UserProperty == [("a", "b"), ("unit", "C")]
        assert second.topic == "clean/mqtt"


def test_functions_run_in_a_process_of_their_own_with_a_time_limit(broker: WebBroker) -> None:
    with MqttInbox(broker.port, "returned/#", qos=1) as inbox, MqttInbox(broker.port, "$dead-letter/#") as dead:
        for payload in (b"a", b"drop", b"fail", b"stop", b"die", b"b"):
            publish(broker.port, "function/1", payload)
        eventually(lambda: [one.payload for one in inbox.messages] == [b"A", b"B"], "those that pass have come")
        assert inbox.messages[0].topic == "returned/function/1"
        assert inbox.messages[0].properties.UserProperty == [("by", "function")]
        eventually(lambda: len(dead.messages) == 3, "the others are dead letters")
        reasons = [dict(one.properties.UserProperty)["overlane-reason"] for one in dead.messages]
        assert [one.payload for one in dead.messages] == [b"fail", b"stop", b"die"]
        assert reasons == [
            "rule function: ValueError: no",
            "rule function: mediation_functions:change has not returned within 2 s",
            "rule function: the process of mediation_functions:change has ended",
        ]


def test_what_was_acknowledged_outlives_kill_9(broker: WebBroker) -> None:
    with MqttInbox(broker.port, "slow/#", qos=1, client_id="kept", expiry_s=600) as inbox:
        publish(broker.port, "slow/1", b"first")
        eventually(lambda: len(inbox.messages) == 1, "the first has come")
    with MqttInbox(broker.port, "returned/#", qos=1, client_id="calls", expiry_s=600):
        pass
    publish(broker.port, "function/1", b"stop")
    publish(broker.port, "function/1", b"behind")
    publish(broker.port, "slow/1", b"second")
    publish(broker.port, "slow/1", b"latest")
    broker.kill()
    broker.start()
    with MqttInbox(broker.port, "slow/#", qos=1, client_id="kept", expiry_s=600) as again:
        eventually(lambda: [one.payload for one in again.messages][-1:] == [b"latest"], "the latest has come")
        assert len(again.messages) <= 2, "and perhaps the second, if its interval was over before the end"
    with MqttInbox(broker.port, "returned/#", qos=1, client_id="calls", expiry_s=600) as calls:
        eventually(lambda: bool(calls.messages), "what waited behind a call has come")
        assert [one.payload for one in calls.messages] == [b"BEHIND"]


# The file and the command


def test_rules_are_read_and_written() -> None:
    network = parse_network("[brokers.here]\n" + RULES + '[[mediation]]\nname = "x"\ntopic = "a/+"\nkeep = true\n'
        'brokers = ["here"]\ndeadband = { field = "v", change = 2 }\ncall_within = "1s"\nremove_properties = ["q"]\n'
        'decode = "msgpack"\n')  # fmt: skip
    assert [one.name for one in network.mediation] == ["celsius", "cbor", "slow", "function", "x"]
    assert parse_network(format_network(network)).mediation == network.mediation


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('where = "a >"\ndrop = true', "where"),
        ('topic = "a"', "at least one of drop, keep"),
        ("drop = true\nkeep = true", "drop is true"),
        ('set_fields = { a = "1 +" }', "a table of fields and expressions"),
        ("deadband = { field = 'a', change = 0 }", "a table such as { field"),
        ('rename = "a/{x}"', 'a topic with levels of the old one such as "plant/{2}/{4-}"'),
        ('call = "no function"', "a Python function such as"),
        ('encode = "xml"', '"json", "cbor" or "msgpack"'),
        ('every = "0s"', 'a duration from "1ms" to "24h"'),
        ('drop = true\nbrokers = ["there"]', "the name of a broker"),
        ("drop = true\nnothing = 1", "an unknown field"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_field(lines: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_network(f'[brokers.here]\n[[mediation]]\nname = "one"\n{lines}\n')
    assert told in str(refused.value)


@pytest.mark.parametrize("table", ["mediation", "dds", "gateways"])
def test_tables_without_a_name_are_refused_each(table: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_network(f"[brokers.here]\n[[{table}]]\n[[{table}]]\n")
    assert str(refused.value).count("].name: found nothing") == 2


def test_two_rules_have_two_names() -> None:
    rule = '[[mediation]]\nname = "one"\ndrop = true\n'
    with pytest.raises(ConfigError, match="a name that no rule before it has"):
        parse_network("[brokers.here]\n" + rule + rule)


def test_the_command_shows_what_rules_do(tmp_path: Path) -> None:
    file = tmp_path / "net.toml"
    file.write_text("[brokers.here]\n" + RULES)
    lines = textwrap.dedent("""\
        {"topic": "raw/1", "payload": {"fahrenheit": 212}, "properties": {"secret": "x"}}
        {"topic": "cbor/1", "payload": "no JSON"}
        {"topic": "other", "base64": "/w==", "at": 3}
    """)
    done = CliRunner().invoke(app, ["mediate", str(file), "--dry-run"], input=lines)
    assert done.exit_code == 1, "a rule has failed"
    first, second, third = done.output.splitlines()
    assert first.endswith('passed  clean/1  {"celsius":100.0,"place":{"kind":"1"},"ok":true}  unit=C')
    assert "   2     0.000 s  failed  by cbor: the payload is not json" in second
    assert third == "   3     3.000 s  passed  other  0xff"
    as_json = CliRunner().invoke(app, ["mediate", str(file), "--dry-run", "--json"], input=lines)
    assert [json.loads(one)["result"] for one in as_json.output.splitlines()] == ["passed", "failed", "passed"]
    assert CliRunner().invoke(app, ["mediate", str(file)], input=lines).exit_code == 2
    wrong = CliRunner().invoke(app, ["mediate", str(file), "--dry-run"], input='{"topi": 1}\n')
    assert (wrong.exit_code, "standard input:1" in wrong.output) == (2, True)
