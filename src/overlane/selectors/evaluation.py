"""A tree becomes a function of the values of a message.

Values are strings, numbers and booleans; None is NULL. Anything else (an object of JSON, bytes) is a value that equals
nothing. Logic has three values, with None for UNKNOWN:

    a comparison with NULL      UNKNOWN
    a comparison of two types   FALSE, also with <>; whole and other numbers are one type
    a condition that is a name  UNKNOWN unless the value is a boolean
    arithmetic                  NULL with anything but numbers, by zero, and beyond what a double can be

A quotient is exact: 7 / 2 is 3.5, as JSON does not tell 7 from 7.0. In this it differs from Java.
"""

from collections.abc import Callable
from math import isfinite
from operator import ge, gt, le, lt
from typing import Protocol, assert_never

from overlane.selectors.syntax import (
    All,
    AnyOf,
    Between,
    Chain,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Negative,
    Node,
    Not,
)

INTEGER_MAX = 2**63


class Values(Protocol):
    """The values of a message by name, None for NULL. A dictionary is one."""

    def get(self, name: str, /) -> object: ...


Compiled = Callable[[Values], object]
Truth = bool | None

_ORDERS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


def compiled(node: Node) -> Compiled:
    match node:
        case Literal(value):
            return lambda _: value
        case Name(name):
            return lambda values: values.get(name)
        case Negative(operand):
            return _negative(compiled(operand))
        case Chain():
            return _chain(node)
        case Comparison():
            return _comparison(node)
        case Between(operand, low, high):
            return _between(compiled(operand), compiled(low), compiled(high))
        case In(operand, items):
            return _in(compiled(operand), items)
        case Like(operand, pattern):
            return _like(compiled(operand), pattern.fullmatch)
        case IsNull(operand):
            return _is_null(compiled(operand))
        case Not(operand):
            return _not(condition(operand))
        case All(operands):
            return _decided_by(False, tuple(map(condition, operands)))
        case AnyOf(operands):
            return _decided_by(True, tuple(map(condition, operands)))
        case _:
            assert_never(node)


def condition(node: Node) -> Callable[[Values], Truth]:
    """As `compiled`, but a value that is no boolean is UNKNOWN."""
    value = compiled(node)

    def truth(values: Values) -> Truth:
        found = value(values)
        return found if isinstance(found, bool) else None

    return truth


def number_of(value: object) -> int | float | None:
    """NULL for what is no number; a boolean is none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


# Logic


def _not(truth: Callable[[Values], Truth]) -> Compiled:
    def negated(values: Values) -> Truth:
        found = truth(values)
        return None if found is None else not found

    return negated


def _decided_by(deciding: bool, conditions: tuple[Callable[[Values], Truth], ...]) -> Compiled:
    """OR is decided by the first that is true, AND by the first that is false; else one UNKNOWN makes it UNKNOWN."""

    def decided(values: Values) -> Truth:
        result: Truth = not deciding
        for truth in conditions:
            found = truth(values)
            if found is deciding:
                return deciding
            if found is None:
                result = None
        return result

    return decided


# Predicates


def _comparison(node: Comparison) -> Compiled:
    left, right = compiled(node.left), compiled(node.right)
    if node.operator in ("=", "<>"):
        is_equal = node.operator == "="

        def equality(values: Values) -> Truth:
            one, other = left(values), right(values)
            if one is None or other is None:
                return None
            kind = _kind(one)
            return kind is not None and kind is _kind(other) and (one == other) is is_equal

        return equality
    compares = _ORDERS[node.operator]

    def order(values: Values) -> Truth:
        one, other = left(values), right(values)
        if one is None or other is None:
            return None
        return _in_order(compares, one, other)

    return order


def _in_order(compares: Callable[[float, float], bool], one: object, other: object) -> bool:
    low, high = number_of(one), number_of(other)
    return low is not None and high is not None and compares(low, high)


def _kind(value: object) -> type | None:
    """What can be compared with each other."""
    if isinstance(value, bool):
        return bool
    if isinstance(value, int | float):
        return float
    return str if isinstance(value, str) else None


def _between(operand: Compiled, low: Compiled, high: Compiled) -> Compiled:
    """operand >= low AND operand <= high."""

    def between(values: Values) -> Truth:
        value, lowest, highest = operand(values), low(values), high(values)
        is_above = None if value is None or lowest is None else _in_order(ge, value, lowest)
        is_below = None if value is None or highest is None else _in_order(le, value, highest)
        if is_above is False or is_below is False:
            return False
        return None if is_above is None or is_below is None else True

    return between


def _in(operand: Compiled, items: tuple[int | float | str, ...]) -> Compiled:
    texts = frozenset(item for item in items if isinstance(item, str))
    numbers = frozenset(item for item in items if not isinstance(item, str))

    def found(values: Values) -> Truth:
        value = operand(values)
        if value is None:
            return None
        if isinstance(value, str):
            return value in texts
        number = number_of(value)
        return number is not None and number in numbers

    return found


def _is_null(operand: Compiled) -> Compiled:
    return lambda values: operand(values) is None


def _like(operand: Compiled, fullmatch: Callable[[str], object]) -> Compiled:
    def like(values: Values) -> Truth:
        value = operand(values)
        if value is None:
            return None
        return isinstance(value, str) and fullmatch(value) is not None

    return like


# Arithmetic


def _negative(operand: Compiled) -> Compiled:
    def negative(values: Values) -> object:
        number = number_of(operand(values))
        return None if number is None else -number

    return negative


def _chain(node: Chain) -> Compiled:
    first = compiled(node.first)
    rest = tuple((_ARITHMETIC[operator], compiled(operand)) for operator, operand in node.rest)

    def result(values: Values) -> object:
        so_far = number_of(first(values))
        for combine, operand in rest:
            number = number_of(operand(values))
            if so_far is None or number is None:
                return None
            try:
                so_far = _bounded(combine(so_far, number))
            except (OverflowError, ZeroDivisionError):
                return None
        return so_far

    return result


def _bounded(value: int | float) -> int | float | None:
    """Whole numbers beyond 64 bits become doubles, so that no product grows without end."""
    if isinstance(value, int):
        return value if -INTEGER_MAX <= value < INTEGER_MAX else float(value)
    return value if isfinite(value) else None


def _quotient(one: int | float, other: int | float) -> int | float:
    if isinstance(one, int) and isinstance(other, int) and one % other == 0:
        return one // other
    return one / other


_ARITHMETIC: dict[str, Callable[[int | float, int | float], int | float]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": _quotient,
}
