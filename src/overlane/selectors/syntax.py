"""The tree of an expression, as the parser leaves it and the evaluation takes it.

Chains are one node: `a AND b AND c` is an `All` of three, `a + b - c` one `Sum`, so that a long selector is not deep.
"""

import re
from dataclasses import dataclass
from enum import Enum


class Type(Enum):
    """What is known of a value before there is a message. A name may be anything."""

    ANY = "anything"
    NUMBER = "a number"
    STRING = "a string"
    BOOLEAN = "a condition"

    def may_be(self, other: "Type") -> bool:
        return self in (other, Type.ANY) or other is Type.ANY


@dataclass(frozen=True, slots=True)
class Literal:
    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    operand: "Node"


@dataclass(frozen=True, slots=True)
class Chain:
    """Arithmetic from left to right; the operators are all + and -, or all * and /."""

    first: "Node"
    rest: tuple[tuple[str, "Node"], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Between:
    operand: "Node"
    low: "Node"
    high: "Node"


@dataclass(frozen=True, slots=True)
class In:
    operand: "Node"
    values: tuple[int | float | str, ...]


@dataclass(frozen=True, slots=True)
class Like:
    operand: "Node"
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: "Node"


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Node"


@dataclass(frozen=True, slots=True)
class All:
    """AND."""

    operands: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """OR."""

    operands: tuple["Node", ...]


Node = Literal | Name | Negative | Chain | Comparison | Between | In | Like | IsNull | Not | All | AnyOf
