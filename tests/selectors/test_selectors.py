"""The selector language: what it accepts, what it means, and what it says of a mistake."""

import pytest

from overlane.selectors import Expression, Match, MessageValues, Selector, SelectorError
from overlane.selectors.lexer import LENGTH_MAX
from overlane.selectors.parser import DEPTH_MAX, IN_MAX

VALUES: dict[str, object] = {
    "i": 7,
    "f": 2.5,
    "s": "lab1",
    "t": True,
    "n": None,
    "o": {"a": 1},
    "content-type": "x",
    "big": 2**62,
    "percent": "50%",
}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("i = 7", Match.TRUE),
        ("i = 7.0", Match.TRUE),
        ("i <> 7", Match.FALSE),
        ("i > 6.5 AND f <= 2.5", Match.TRUE),
        ("I = 7", Match.UNKNOWN),
        ("i = 7 aNd NoT s = 'lab2'", Match.TRUE),
        ("i + 1 * 2 = 9", Match.TRUE),
        ("(i + 1) * 2 = 16", Match.TRUE),
        ("i - 1 - 1 = 5", Match.TRUE),
        ("i / 2 = 3.5", Match.TRUE),
        ("-i = -7 AND +i = 7 AND - -i = 7", Match.TRUE),
        ("i = 7L AND f = 2.5f AND .5 < 1d AND 1e1 = 10", Match.TRUE),
        ("s = 'it''s'", Match.FALSE),
        ("s LIKE 'lab_' AND s LIKE '%b%' AND s LIKE 'lab1' AND s LIKE '%'", Match.TRUE),
        ("s LIKE 'la'", Match.FALSE),
        ("percent LIKE '50!%' ESCAPE '!'", Match.TRUE),
        ("s LIKE 'lab!_' ESCAPE '!'", Match.FALSE),
        ("s NOT LIKE 'x%'", Match.TRUE),
        ("s IN ('a', 'lab1') AND i IN (1, -2, 7.0)", Match.TRUE),
        ("s NOT IN ('a', 'b')", Match.TRUE),
        ("i BETWEEN 7 AND 8 AND i NOT BETWEEN 8 AND 9", Match.TRUE),
        ("t", Match.TRUE),
        ("t = TRUE AND t <> FALSE", Match.TRUE),
        ("NOT t OR FALSE", Match.FALSE),
        ("\"content-type\" = 'x'", Match.TRUE),
        # NULL, and what is not there
        ("n IS NULL AND missing IS NULL AND i IS NOT NULL AND o IS NOT NULL", Match.TRUE),
        ("n = 1", Match.UNKNOWN),
        ("n <> 1", Match.UNKNOWN),
        ("NOT n = 1", Match.UNKNOWN),
        ("n = 1 AND i = 8", Match.FALSE),
        ("n = 1 AND i = 7", Match.UNKNOWN),
        ("n = 1 OR i = 7", Match.TRUE),
        ("n BETWEEN 1 AND 2", Match.UNKNOWN),
        ("i BETWEEN n AND 6", Match.FALSE),
        ("n IN (1)", Match.UNKNOWN),
        ("n LIKE '%'", Match.UNKNOWN),
        ("i / 0 = 1", Match.UNKNOWN),
        ("i + s = 1", Match.UNKNOWN),
        ("1e308 * 10 > 1", Match.UNKNOWN),
        ("big * big * big * big > 1", Match.TRUE),
        # Types that do not fit
        ("i = s", Match.FALSE),
        ("i <> s", Match.FALSE),
        ("t = 1", Match.FALSE),
        ("s > 1", Match.FALSE),
        ("o = 1", Match.FALSE),
        ("o = o", Match.FALSE),
        ("i LIKE '7'", Match.FALSE),
        ("t IN (1)", Match.FALSE),
        ("s", Match.UNKNOWN),
        ("NOT i", Match.UNKNOWN),
    ],
)
def test_a_selector_has_three_results(text: str, result: Match) -> None:
    assert Selector.parse(text).matches(VALUES) is result


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "at character 1: found the end, expected a name, a value or ("),
        ("a =", "at character 4: found the end, expected a name, a value or ("),
        ("a != 3", "at character 3: found !=, expected <>"),
        ("a == 3", "at character 4: found =, expected a name, a value or ("),
        ("a = 'x", "at character 5: found 'x, expected a quote ' at the end of the string"),
        ('"a = 1', 'at character 1: found "a = 1, expected a quote " at the end of the name'),
        ("a = 1 b", "at character 7: found b, expected an operator, AND, OR or the end"),
        ("(a = 1", "at character 7: found the end, expected )"),
        ("a IS 1", "at character 6: found 1, expected NULL or NOT NULL"),
        ("a IS NOT 1", "at character 10: found 1, expected NULL"),
        ("a NOT 1", "at character 7: found 1, expected BETWEEN, IN or LIKE"),
        ("a BETWEEN 1 OR 2", "at character 13: found OR, expected AND"),
        ("a IN 1", "at character 6: found 1, expected ("),
        ("a IN (b)", "at character 7: found b, expected a string or a number"),
        ("a IN (1 2)", "at character 9: found 2, expected , or )"),
        ("a + 1 IN ('b')", "at character 11: found the string 'b', expected a number"),
        ("a LIKE b", "at character 8: found b, expected a pattern in quotes"),
        ("a LIKE 'x' ESCAPE 'no'", "at character 19: found the string 'no', expected one character in quotes"),
        ("a LIKE 'x!' ESCAPE '!'", "at character 8: found the string 'x!', expected a character behind each !"),
        ("room > 'lab'", "at character 8: found a string, expected a number"),
        ("'a' + 1 = 2", "at character 1: found a string, expected a number"),
        ("1 = 'a'", "at character 5: found a string, expected a number"),
        ("1 + 1", "at character 1: found a number, expected a condition"),
        ("a AND 'x'", "at character 7: found a string, expected a condition"),
        ("1abc = 2", "at character 1: found 1abc, expected a number, or a name that begins with a letter, _ or $"),
        ("a = 1; b", "at character 6: found ';', expected a name, a value or an operator"),
        ("a = 1e999", "at character 5: found 1e999, expected a number of at most 1.7e308"),
        (
            "x" * (LENGTH_MAX + 1),
            "at character 4097: found 4097 characters, expected at most 4096",
        ),
    ],
)
def test_a_mistake_is_told_with_its_position_and_what_was_expected(text: str, told: str) -> None:
    with pytest.raises(SelectorError) as caught:
        Selector.parse(text)
    assert str(caught.value) == told


@pytest.mark.parametrize("opening", ["(", "NOT ", "- "])
def test_depth_is_limited_before_the_stack_is(opening: str) -> None:
    with pytest.raises(SelectorError, match=f"more than {DEPTH_MAX} levels"):
        Selector.parse(opening * 1000 + "a")


def test_a_long_chain_is_not_deep() -> None:
    assert Selector.parse(" AND ".join(["a = 1"] * 300)).matches({"a": 1}) is Match.TRUE
    assert Selector.parse("a" + "+a" * 1000 + " = 1001").matches({"a": 1}) is Match.TRUE
    with pytest.raises(SelectorError, match=f"at most {IN_MAX} values"):
        Selector.parse(f"a IN ({','.join(['1'] * (IN_MAX + 1))})")


def test_a_hostile_pattern_takes_no_more_time_than_its_length() -> None:
    selector = Selector.parse(f"a LIKE '{'%a' * 200}b'")
    assert selector.matches({"a": "a" * 2000}) is Match.FALSE


def test_a_selector_knows_its_names_and_equals_one_of_the_same_text() -> None:
    selector = Selector.parse("a.b = 1 AND NOT (c LIKE 'x' OR \"d.e\".f IN (1))")
    assert selector.names == {"a.b", "c", '"d.e".f'}
    assert {selector} == {Selector.parse(selector.text)}


def test_an_expression_computes_a_value() -> None:
    assert Expression.parse("(fahrenheit - 32) * 5 / 9").value({"fahrenheit": 50}) == 10
    assert Expression.parse("(fahrenheit - 32) * 5 / 9").value({}) is None
    assert Expression.parse("'x'").value({}) == "x"


MESSAGE = MessageValues(
    "plant/north/t1",
    b'{"temperature": 21.5, "room": {"name": "lab1"}, "readings": [{"v": 1}, {"v": 2}], "a.b": 3, "none": null}',
    (("site", "berlin"), ("site", "rome"), ("room.name", "x"), ("none", "p")),
    "application/json",
    qos=1,
)


@pytest.mark.parametrize(
    "text",
    [
        "temperature > 20 AND room.name = 'lab1'",
        "readings.1.v = 2 AND readings.2.v IS NULL AND readings.x IS NULL",
        '"a.b" = 3 AND a.b IS NULL',
        "$payload.temperature = 21.5 AND $payload.site IS NULL",
        "site = 'berlin' AND $property.site = 'berlin' AND $property.temperature IS NULL",
        "$property.room.name = 'x' AND none = 'p'",
        "$topic = 'plant/north/t1' AND $level.2 = 'north' AND $level.0 IS NULL AND $level.4 IS NULL",
        "$content_type = 'application/json' AND $qos = 1 AND NOT $retain",
        "temperature.x IS NULL AND $level.99999999999 IS NULL",
    ],
)
def test_a_message_has_its_fields_properties_and_levels(text: str) -> None:
    assert MESSAGE.matched_by(Selector.parse(text)) is Match.TRUE


@pytest.mark.parametrize(
    ("payload", "text", "result"),
    [
        (b"21.5 degrees", "temperature > 20", Match.NOT_JSON),
        (b"\xff", "NOT temperature > 20", Match.NOT_JSON),
        (b"", "temperature > 20", Match.NOT_JSON),
        (b"[" * 100_000, "temperature > 20", Match.NOT_JSON),
        (b"9" * 10_000, "temperature > 20", Match.NOT_JSON),
        (b'"' + b"a" * (1 << 20) + b'"', "temperature > 20", Match.NOT_JSON),
        (b"{}", "temperature > 20", Match.UNKNOWN),
        (b"21.5", "temperature > 20", Match.UNKNOWN),
        (b'{"temperature": 19}', "temperature > 20", Match.FALSE),
        (b"degrees", "site = 'rome'", Match.FALSE),
        (b"degrees", "site = 'berlin' OR temperature > 20", Match.TRUE),
        (b"degrees", "temperature IS NULL", Match.TRUE),
        (b"degrees", "$level.1 = 'b'", Match.FALSE),
    ],
)
def test_a_payload_that_is_not_json_is_told_apart(payload: bytes, text: str, result: Match) -> None:
    values = MessageValues("a", payload, (("site", "berlin"),))
    assert values.matched_by(Selector.parse(text)) is result
