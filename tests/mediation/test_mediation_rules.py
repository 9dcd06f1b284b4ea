"""Rules of mediation as pure functions: what becomes of a message, formats, fields, topics, dry runs."""

import math
from typing import Any

import cbor2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.core.units import SECOND
from overlane.mediation.draft import Draft
from overlane.mediation.dry_run import DryRun
from overlane.mediation.fields import with_field, without_field
from overlane.mediation.formats import decode, encode, format_of
from overlane.mediation.functions import FunctionMessage, apply, find_function
from overlane.mediation.mediation import (
    Called,
    Dropped,
    Failed,
    Held,
    Mediation,
    Memory,
    Passed,
    Result,
    Resume,
    RuleStage,
)
from overlane.mediation.renaming import check_template, renamed
from overlane.mediation.rule import MediationRule, RuleFailed


def ran(draft: Draft, *rules: MediationRule, memory: Memory | None = None, now: int = 0) -> Result:
    memory = memory or Memory()
    result = Mediation(rules).run(draft, memory, now)
    memory.apply(result.changes)
    return result


def rule(**fields: Any) -> MediationRule:
    return MediationRule(name=fields.pop("name", "one"), **fields)


def json_of(result: Result) -> object:
    assert isinstance(result, Passed)
    return msgspec.json.decode(result.draft.payload)


# One rule


def test_a_rule_is_for_its_topics_and_its_selector() -> None:
    one = rule(topic="a/+", where="t > 5", drop=True)
    assert ran(Draft("a/1", b'{"t": 6}'), one) == Dropped("one")
    for topic, payload in (("a/1", b'{"t": 5}'), ("b/1", b'{"t": 6}'), ("a/1", b"no JSON"), ("a/1", b"")):
        draft = Draft(topic, payload)
        result = ran(draft, one)
        assert isinstance(result, Passed)
        assert result.draft is draft, "it is not even copied"


def test_keep_ends_the_rules() -> None:
    keep, drop = rule(name="keep", topic="a/#", keep=True), rule(name="drop", drop=True)
    assert isinstance(ran(Draft("a/1", b""), keep, drop), Passed)
    assert ran(Draft("b", b""), keep, drop) == Dropped("drop")


def test_units_are_converted_by_expressions_that_see_the_message_as_it_came() -> None:
    one = rule(
        set_fields=(("celsius", "(fahrenheit - 32) / 1.8"), ("fahrenheit", "0"), ("kind", "$level.2"), ("p", "unit")),
        remove_fields=("raw", "deep.x"),
    )
    draft = Draft("a/b", b'{"fahrenheit": 68.0, "raw": [1], "deep": {"x": 1, "y": 2}}', properties=(("unit", "F"),))
    result = ran(draft, one)
    expected = {"fahrenheit": 0, "deep": {"y": 2}, "celsius": 20.0, "kind": "b", "p": "F"}
    assert json_of(result) == expected
    assert msgspec.json.decode(draft.payload)["fahrenheit"] == 68.0, "the draft itself is as it was"


def test_an_expression_without_a_value_fails() -> None:
    failed = ran(Draft("a", b"{}"), rule(set_fields=(("celsius", "fahrenheit + 1"),)))
    assert failed == Failed("one", "field celsius: fahrenheit + 1 is NULL: a name in it has no value")


def test_a_payload_that_is_no_json_fails_where_fields_are_set() -> None:
    failed = ran(Draft("a", b"\xff"), rule(set_fields=(("a", "1"),)))
    assert isinstance(failed, Failed)
    assert failed.reason.startswith("the payload is not json: ")


def test_properties_are_set_and_removed() -> None:
    one = rule(set_properties=(("site", "rome"),), remove_properties=("secret",))
    result = ran(Draft("a", b"\xff", properties=(("site", "x"), ("secret", "y"), ("a", "b"))), one)
    assert isinstance(result, Passed)
    assert result.draft.properties == (("a", "b"), ("site", "rome"))


def test_later_rules_see_what_earlier_ones_have_made() -> None:
    rules = (
        rule(name="rename", topic="raw/#", rename="clean/{2-}", set_fields=(("v", "v * 2"),)),
        rule(name="other", topic="raw/#", drop=True),
        rule(name="high", topic="clean/#", where="v > 10", drop=True),
    )
    assert ran(Draft("raw/1", b'{"v": 6}'), *rules) == Dropped("high")
    result = ran(Draft("raw/1", b'{"v": 5}'), *rules)
    assert isinstance(result, Passed)
    assert (result.draft.topic, result.draft.payload) == ("clean/1", b'{"v":10}')


def test_an_empty_payload_is_renamed_and_has_no_fields() -> None:
    one = rule(
        rename="x/{1}", set_fields=(("a", "1"),), encode="cbor", deadband=("v", 1.0), set_properties=(("a", "b"),)
    )
    result = ran(Draft("t", b"", retain=True), one)
    assert isinstance(result, Passed)
    assert (result.draft.topic, result.draft.payload, result.draft.properties) == ("x/t", b"", (("a", "b"),))


# What rules remember


def test_a_deadband_drops_what_has_not_changed_enough_by_topic() -> None:
    one, memory = rule(deadband=("v", 0.5)), Memory()
    sent = [("a", 1.0), ("a", 1.4), ("b", 1.4), ("a", 1.5), ("a", 1.1), ("a", 1.0)]
    kinds = [type(ran(Draft(topic, b'{"v": %r}' % value), one, memory=memory)) for topic, value in sent]
    assert kinds == [Passed, Dropped, Passed, Passed, Dropped, Passed]


@pytest.mark.parametrize("payload", [b"{}", b'{"v": "x"}', b'{"v": true}', b"1"])
def test_a_deadband_needs_a_number(payload: bytes) -> None:
    assert isinstance(ran(Draft("a", payload), rule(deadband=("v", 0.5))), Failed)


def test_of_each_interval_the_first_passes_and_the_others_are_held() -> None:
    one, memory = rule(every_ns=SECOND), Memory()
    assert isinstance(ran(Draft("a", b"0"), one, memory=memory, now=0), Passed)
    held = ran(Draft("a", b"1"), one, memory=memory, now=SECOND - 1)
    assert isinstance(held, Held)
    assert (held.until_ns, held.draft.payload) == (SECOND, b"1")
    assert isinstance(ran(Draft("b", b"1"), one, memory=memory, now=SECOND - 1), Passed)
    assert isinstance(ran(Draft("a", b"2"), one, memory=memory, now=SECOND), Passed)


def test_a_message_goes_on_behind_the_rule_that_it_has_waited_for() -> None:
    rules = Mediation(
        (
            rule(name="slow", every_ns=SECOND, set_properties=(("slow", "yes"),)),
            rule(name="function", call="a:b"),
            rule(name="last", set_properties=(("last", "yes"),)),
        )
    )
    called = rules.run(Draft("a", b""), Memory(), 0, Resume("slow", RuleStage.HELD))
    assert isinstance(called, Called)
    assert (called.function, called.draft.properties) == ("a:b", (("slow", "yes"),))
    passed = rules.run(called.draft, Memory(), 0, Resume("function", RuleStage.CALLED))
    assert isinstance(passed, Passed)
    assert passed.draft.properties == (("slow", "yes"), ("last", "yes"))
    assert rules.run(called.draft, Memory(), 0, Resume("gone", RuleStage.HELD)) == Passed(called.draft)


def test_what_is_remembered_is_bounded_and_ends_with_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overlane.mediation.mediation.TOPICS_REMEMBERED_MAX", 3)
    one, memory = rule(deadband=("v", 0.5)), Memory()
    for number in range(10):
        ran(Draft(f"t/{number}", b'{"v": 1}'), one, memory=memory)
    assert list(memory.values) == [("one", f"t/{number}") for number in (7, 8, 9)]
    memory.forget(["other"])
    assert not memory.values


def test_only_topics_of_rules_are_concerned() -> None:
    mediation = Mediation([rule(topic="a/+/c"), rule(name="two", topic="b/#")])
    assert [mediation.concerns(one) for one in ("a/b/c", "b", "b/1", "a/b", "c")] == [True, True, True, False, False]


# Formats


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@examples(100)
@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_what_json_can_say_survives_cbor_and_messagepack(value: dict[str, Any]) -> None:
    draft = Draft("t", msgspec.json.encode(value))
    chain = [rule(name=f"{number}", encode=one) for number, one in enumerate(("cbor", "msgpack", "json"))]
    result = ran(draft, *chain)
    assert isinstance(result, Passed)
    assert msgspec.json.decode(result.draft.payload) == value
    assert result.draft.content_type == "application/json"
    half = ran(draft, chain[0])
    assert isinstance(half, Passed)
    assert cbor2.loads(half.draft.payload) == value
    assert half.draft.content_type == "application/cbor"


@examples(200)
@given(st.binary(max_size=60), st.sampled_from(["json", "cbor", "msgpack"]), st.sampled_from(["json", "cbor"]))
def test_any_bytes_are_converted_or_the_rule_fails(payload: bytes, source: Any, target: Any) -> None:
    one = rule(decode=source, encode=target, where="a > 1 OR TRUE", set_fields=(("a", "1"),))
    assert isinstance(ran(Draft("t", payload or b"\0"), one), Passed | Failed)


def test_selectors_read_fields_of_cbor_too() -> None:
    one = rule(where="t > 5", drop=True)
    for form, content_type in (("cbor", "application/senml+cbor"), ("msgpack", "application/x-msgpack; v=1")):
        assert ran(Draft("t", encode({"t": 6}, form), content_type=content_type), one) == Dropped("one")  # type: ignore[arg-type]
    assert ran(Draft("t", encode({"t": 6}, "cbor")), rule(where="t > 5", decode="cbor", drop=True)) == Dropped("one")


def test_formats_are_known_by_their_content_types() -> None:
    known = [format_of(one) for one in (None, "text/plain", "application/JSON", "application/cbor", "x/y+cbor;a=b")]
    assert known == ["json", "json", "json", "cbor", "cbor"]


def test_what_a_format_cannot_say_fails() -> None:
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    for value in (math.inf, [math.nan], {"a": {"b": -math.inf}}, deep):
        with pytest.raises(RuleFailed):
            encode(value, "json")
    with pytest.raises(RuleFailed, match="at most 1048576 are decoded"):
        decode(b" " * (1 << 20) + b"1", "json")


# Fields and topics


def test_fields_are_set_and_removed_by_their_paths() -> None:
    body = {"a": {"b": 1}, "list": [{"x": 1}, 2]}
    assert with_field(body, ("a", "c"), 2) == {"a": {"b": 1, "c": 2}, "list": [{"x": 1}, 2]}
    assert with_field(body, ("list", "0", "x"), 3) == {"a": {"b": 1}, "list": [{"x": 3}, 2]}
    assert with_field(None, ("n", "m"), 1) == {"n": {"m": 1}}
    assert without_field(body, ("list", "0")) == {"a": {"b": 1}, "list": [2]}
    assert without_field(body, ("a", "x", "y")) == body
    assert body == {"a": {"b": 1}, "list": [{"x": 1}, 2]}
    with pytest.raises(RuleFailed, match="an array of 2 has no item '7'"):
        with_field(body, ("list", "7"), 1)
    with pytest.raises(RuleFailed, match="neither an object nor an array"):
        with_field(body, ("a", "b", "c"), 1)


def test_topics_are_made_of_levels() -> None:
    assert renamed("plant/{2}/{4-}", "sensors/hall/raw/1/x") == "plant/hall/1/x"
    assert renamed("{1-}/copy", "a/b") == "a/b/copy"
    with pytest.raises(RuleFailed, match="has 2 levels, and no level 3"):
        renamed("{3}", "a/b")
    with pytest.raises(RuleFailed, match="begins with"):
        renamed("{1}/x", "$a/b")


@pytest.mark.parametrize("template", ["", "a/{0}", "a/{x}", "a/{1", "a/+", "$SYS/{1}", "a/#", "{1}}"])
def test_a_wrong_template_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_template(template)


# Functions


def shout(message: FunctionMessage) -> bytes:
    return message.payload.upper()


def wrong(message: FunctionMessage) -> object:
    return len(message.payload)


def broken(message: FunctionMessage) -> FunctionMessage:
    message.topic = 3  # type: ignore[assignment]
    return message


def test_what_a_function_returns_is_checked() -> None:
    message = FunctionMessage(topic="a", payload=b"x")
    returned = apply(shout, message)
    assert returned is not None
    assert returned.payload == b"X"
    for function, told in ((wrong, "has returned int"), (broken, "a wrong field")):
        with pytest.raises(RuleFailed, match=told):
            apply(function, FunctionMessage(topic="a", payload=b"x"))  # type: ignore[arg-type]
    for name in ("no.such.module:f", "math:nothing", "math:pi"):
        with pytest.raises(RuleFailed, match=name):
            find_function(name)


# Dry runs


def test_a_dry_run_shows_what_passes_when() -> None:
    rules = Mediation([rule(name="slow", topic="a", every_ns=10 * SECOND), rule(name="no", topic="b", drop=True)])
    messages = [(at * SECOND, Draft(topic, b"%d" % at)) for at, topic in ((0, "a"), (1, "a"), (2, "a"), (3, "b"))]
    steps = [(one.number, one.at_ns // SECOND, one.result, one.rule) for one in DryRun(rules).run(messages)]
    assert steps == [
        (1, 0, "passed", ""),
        (2, 1, "held", "slow"),
        (2, 2, "dropped", "slow"),
        (3, 2, "held", "slow"),
        (4, 3, "dropped", "no"),
        (3, 10, "passed", ""),
    ]
