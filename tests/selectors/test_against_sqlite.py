"""Selectors mean what the same conditions mean in SQL: SQLite is the independent evaluation.

Left out are types that do not fit each other, where SQLite converts and JMS does not.
"""

import sqlite3
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.selectors import Match, Selector, SelectorError

NUMBERS = ("n1", "n2")
STRINGS = ("s1", "s2")
RESULTS = {1: Match.TRUE, 0: Match.FALSE, None: Match.UNKNOWN}

number_values = st.one_of(st.none(), st.integers(-9, 9), st.sampled_from([0.5, -2.25, 3.0]))
string_values = st.one_of(st.none(), st.text("ab%_!'", max_size=5))
rows = st.fixed_dictionaries({**dict.fromkeys(NUMBERS, number_values), **dict.fromkeys(STRINGS, string_values)})


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


literals = st.one_of(st.integers(0, 9).map(str), st.sampled_from(["0.5", "2.25", "1e1"]))
strings = st.text("ab%_!'", max_size=4).map(quoted)


def arithmetic(inner: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    """Pairs: the selector's text, and SQL's. SQLite divides whole numbers to a whole one unless one is multiplied."""
    pairs = st.tuples(inner, st.sampled_from("+-*/"), inner)
    return st.one_of(
        pairs.map(
            lambda one: (
                f"({one[0][0]} {one[1]} {one[2][0]})",
                f"({one[0][1]}{' * 1.0' if one[1] == '/' else ''} {one[1]} {one[2][1]})",
            )
        ),
        inner.map(lambda one: (f"(- {one[0]})", f"(- {one[1]})")),
    )


numbers = st.recursive(
    st.one_of(literals, st.sampled_from(NUMBERS)).map(lambda one: (one, one)), arithmetic, max_leaves=4
)
maybe_not = st.sampled_from(["", "NOT "])


def alike(make: Callable[..., str], *parts: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    return st.tuples(*parts).map(lambda found: (make(*(one[0] for one in found)), make(*(one[1] for one in found))))


def same(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, str]]:
    return strategy.map(lambda one: (one, one))


operators = same(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
names = same(st.sampled_from(STRINGS))
predicates = st.one_of(
    alike(lambda a, op, b: f"{a} {op} {b}", numbers, operators, numbers),
    alike(lambda a, op, b: f"{a} {op} {b}", names, same(st.sampled_from(["=", "<>"])), st.one_of(names, same(strings))),
    alike(lambda a, no, b, c: f"{a} {no}BETWEEN {b} AND {c}", numbers, same(maybe_not), numbers, numbers),
    alike(lambda a, no, b, c: f"{a} {no}IN ({b}, {c})", names, same(maybe_not), same(strings), same(strings)),
    alike(lambda a, no, b, c: f"{a} {no}IN ({b}, -{c})", numbers, same(maybe_not), same(literals), same(literals)),
    alike(lambda a, no, b: f"{a} {no}LIKE {b}", names, same(maybe_not), same(strings)),
    alike(
        lambda a, no, b: f"{a} {no}LIKE {b} ESCAPE '!'",
        names,
        same(maybe_not),
        same(st.lists(st.sampled_from(["a", "b", "%", "_", "!%", "!_", "!!"]), max_size=5).map("".join).map(quoted)),
    ),
    alike(lambda a, no: f"{a} IS {no}NULL", st.one_of(names, numbers), same(maybe_not)),
    same(st.sampled_from(["TRUE", "FALSE"])),
)
conditions = st.recursive(
    predicates,
    lambda inner: st.one_of(
        alike(lambda a: f"NOT ({a})", inner),
        alike(lambda a, op, b: f"({a} {op} {b})", inner, same(st.sampled_from(["AND", "OR"])), inner),
        alike(lambda a, b, c: f"{a} OR {b} AND {c}", predicates, inner, predicates),
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = ON")
    return connection


@examples(300)
@given(conditions, rows)
def test_a_condition_means_what_it_means_in_sql(
    database: sqlite3.Connection, condition: tuple[str, str], row: dict[str, object]
) -> None:
    selector, sql = condition
    columns = ", ".join(f"? AS {name}" for name in row)
    (expected,) = database.execute(f"SELECT {sql} FROM (SELECT {columns})", list(row.values())).fetchone()
    assert Selector.parse(selector).matches(row) is RESULTS[expected]


PIECES = "a b.c $ 1 .5 'x' ' \" ( ) , = <> < > + - * / AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE é ! 1e5"


@examples(200)
@given(st.lists(st.sampled_from([*PIECES.split(), "\0"]), max_size=25).map(" ".join) | st.text(max_size=40))
def test_any_text_is_a_selector_or_has_a_mistake_at_a_position_within_it(text: str) -> None:
    try:
        assert isinstance(Selector.parse(text).matches({"a": 1, "b.c": "x"}), Match)
    except SelectorError as error:
        if not (error.found and error.expected and 1 <= error.position <= len(text) + 1):
            raise
