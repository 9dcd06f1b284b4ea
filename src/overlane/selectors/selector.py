"""Selectors and expressions as other parts use them: parsed once, evaluated for each message."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Self

from overlane.selectors.errors import SelectorError
from overlane.selectors.evaluation import Values, compiled, condition
from overlane.selectors.parser import parse
from overlane.selectors.syntax import Name, Node, Type

__all__ = ["Expression", "Match", "Selector", "Values"]


class Match(Enum):
    """The result of a condition. Only TRUE lets a message through; the others tell why it does not pass."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"
    """A value that was needed is NULL."""
    NOT_JSON = "not JSON"
    """UNKNOWN or FALSE, of a message whose payload would have been needed but is not JSON."""

    def __bool__(self) -> bool:
        return self is Match.TRUE


_RESULTS = {True: Match.TRUE, False: Match.FALSE, None: Match.UNKNOWN}


class Selector:
    """A condition. Two are equal if their texts are."""

    __slots__ = ("_evaluate", "names", "text")

    def __init__(self, text: str, node: Node) -> None:
        self.text = text
        self.names = frozenset(_names(node))
        """The names whose values it may ask for."""
        self._evaluate = condition(node)

    @classmethod
    def parse(cls, text: str) -> Self:
        """SelectorError, which tells the position, what was found and what was expected."""
        found = parse(text)
        if not found.type.may_be(Type.BOOLEAN):
            raise SelectorError(found.position, found.type.value, Type.BOOLEAN.value)
        return cls(text, found.node)

    def matches(self, values: Values) -> Match:
        return _RESULTS[self._evaluate(values)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


class Expression:
    """A value computed from the values of a message, such as `(fahrenheit - 32) * 5 / 9`."""

    __slots__ = ("_evaluate", "names", "text")

    def __init__(self, text: str, node: Node) -> None:
        self.text = text
        self.names = frozenset(_names(node))
        self._evaluate = compiled(node)

    @classmethod
    def parse(cls, text: str) -> Self:
        """SelectorError, as for a selector."""
        return cls(text, parse(text).node)

    def value(self, values: Values) -> object:
        """None if it is NULL."""
        return self._evaluate(values)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def _names(node: object) -> Iterator[str]:
    if isinstance(node, Name):
        yield node.name
    elif isinstance(node, tuple):
        for one in node:
            yield from _names(one)
    elif is_dataclass(node):
        for field in fields(node):
            yield from _names(getattr(node, field.name))
