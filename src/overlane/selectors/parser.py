"""The grammar of selectors, read from left to right.

    condition  = term { OR term }
    term       = factor { AND factor }
    factor     = NOT factor | predicate
    predicate  = sum [ comparison sum
                     | [NOT] BETWEEN sum AND sum
                     | [NOT] IN ( value { , value } )
                     | [NOT] LIKE string [ESCAPE string]
                     | IS [NOT] NULL ]
    sum        = product { (+|-) product }
    product    = unary { (*|/) unary }
    unary      = (+|-) unary | value | name | ( condition )

Types that can never fit are refused here, where a user can still be told: `room > 'lab'`, `'a' + 1`, `temperature AND
TRUE + 1`. Of names nothing is known, so that they fit everywhere. Parentheses, NOT and signs are limited in depth.
"""

from collections.abc import Callable
from typing import NamedTuple

from overlane.selectors.errors import SelectorError
from overlane.selectors.lexer import Token, TokenKind, tokens
from overlane.selectors.patterns import like_pattern
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
    Type,
)

DEPTH_MAX = 32
IN_MAX = 256
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


class Typed(NamedTuple):
    """A part of the tree, its type, and where it begins."""

    node: Node
    type: Type
    position: int


def parse(text: str) -> Typed:
    """The tree of an expression of any type; SelectorError."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Typed:
        found = self._condition()
        if self._token.kind is not TokenKind.END:
            raise self._unexpected("an operator, AND, OR or the end")
        return found

    # Tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _is(self, kind: TokenKind, *texts: str) -> bool:
        token = self._token
        return token.kind is kind and token.text in texts

    def _skip(self, kind: TokenKind, text: str) -> bool:
        """Whether it was there; then it is passed."""
        is_there = self._is(kind, text)
        self._at += is_there
        return is_there

    def _require(self, kind: TokenKind, text: str, expected: str = "") -> None:
        if not self._skip(kind, text):
            raise self._unexpected(expected or text)

    def _next(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _unexpected(self, expected: str) -> SelectorError:
        return SelectorError(self._token.position, str(self._token), expected)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise SelectorError(
                self._token.position, f"more than {DEPTH_MAX} levels of parentheses, NOT and signs", "fewer"
            )

    # Conditions

    def _condition(self) -> Typed:
        first = self._term()
        if not self._is(TokenKind.KEYWORD, "OR"):
            return first
        operands = [_of(Type.BOOLEAN, first)]
        while self._skip(TokenKind.KEYWORD, "OR"):
            operands.append(_of(Type.BOOLEAN, self._term()))
        return Typed(AnyOf(tuple(operands)), Type.BOOLEAN, first.position)

    def _term(self) -> Typed:
        first = self._factor()
        if not self._is(TokenKind.KEYWORD, "AND"):
            return first
        operands = [_of(Type.BOOLEAN, first)]
        while self._skip(TokenKind.KEYWORD, "AND"):
            operands.append(_of(Type.BOOLEAN, self._factor()))
        return Typed(All(tuple(operands)), Type.BOOLEAN, first.position)

    def _factor(self) -> Typed:
        position = self._token.position
        if not self._skip(TokenKind.KEYWORD, "NOT"):
            return self._predicate()
        self._deeper()
        operand = self._factor()
        self._depth -= 1
        return Typed(Not(_of(Type.BOOLEAN, operand)), Type.BOOLEAN, position)

    def _predicate(self) -> Typed:
        left = self._sum()
        if self._is(TokenKind.OPERATOR, *COMPARISONS):
            operator = self._next().text
            return Typed(_comparison(operator, left, self._sum()), Type.BOOLEAN, left.position)
        if self._skip(TokenKind.KEYWORD, "IS"):
            is_negated = self._skip(TokenKind.KEYWORD, "NOT")
            self._require(TokenKind.KEYWORD, "NULL", "NULL" if is_negated else "NULL or NOT NULL")
            return _negated(is_negated, IsNull(left.node), left.position)
        is_negated = self._skip(TokenKind.KEYWORD, "NOT")
        if self._skip(TokenKind.KEYWORD, "BETWEEN"):
            operand, low = _of(Type.NUMBER, left), _of(Type.NUMBER, self._sum())
            self._require(TokenKind.KEYWORD, "AND")
            high = _of(Type.NUMBER, self._sum())
            return _negated(is_negated, Between(operand, low, high), left.position)
        if self._skip(TokenKind.KEYWORD, "IN"):
            if left.type is Type.BOOLEAN:
                raise SelectorError(left.position, left.type.value, "a string or a number in front of IN")
            return _negated(is_negated, In(left.node, self._values(left.type)), left.position)
        if self._skip(TokenKind.KEYWORD, "LIKE"):
            return _negated(is_negated, self._like(_of(Type.STRING, left)), left.position)
        if is_negated:
            raise self._unexpected("BETWEEN, IN or LIKE")
        return left

    def _values(self, wanted: Type) -> tuple[int | float | str, ...]:
        self._require(TokenKind.OPERATOR, "(")
        found = [self._value(wanted)]
        while self._skip(TokenKind.OPERATOR, ","):
            if len(found) == IN_MAX:
                raise self._unexpected(f"at most {IN_MAX} values")
            found.append(self._value(wanted))
        self._require(TokenKind.OPERATOR, ")", ", or )")
        return tuple(found)

    def _value(self, wanted: Type) -> int | float | str:
        sign = -1 if self._skip(TokenKind.OPERATOR, "-") else 1
        token = self._token
        if token.kind is TokenKind.NUMBER and wanted.may_be(Type.NUMBER):
            return sign * self._next().number
        if token.kind is TokenKind.STRING and sign == 1 and wanted.may_be(Type.STRING):
            return self._next().text
        raise self._unexpected("a string or a number" if wanted is Type.ANY and sign == 1 else wanted.value)

    def _string(self, expected: str) -> str:
        if self._token.kind is not TokenKind.STRING:
            raise self._unexpected(expected)
        return self._next().text

    def _like(self, operand: Node) -> Like:
        position = self._token.position
        pattern = self._string("a pattern in quotes")
        escape = self._escape() if self._skip(TokenKind.KEYWORD, "ESCAPE") else ""
        try:
            return Like(operand, like_pattern(pattern, escape))
        except ValueError:
            raise SelectorError(position, f"the string {pattern!a}", f"a character behind each {escape}") from None

    def _escape(self) -> str:
        position = self._token.position
        escape = self._string("one character in quotes")
        if len(escape) != 1:
            raise SelectorError(position, f"the string {escape!a}", "one character in quotes")
        return escape

    # Values

    def _sum(self) -> Typed:
        return self._chain(self._product, "+", "-")

    def _product(self) -> Typed:
        return self._chain(self._unary, "*", "/")

    def _chain(self, operand: Callable[[], Typed], *operators: str) -> Typed:
        first = operand()
        if not self._is(TokenKind.OPERATOR, *operators):
            return first
        node = _of(Type.NUMBER, first)
        rest: list[tuple[str, Node]] = []
        while self._is(TokenKind.OPERATOR, *operators):
            operator = self._next().text
            rest.append((operator, _of(Type.NUMBER, operand())))
        return Typed(Chain(node, tuple(rest)), Type.NUMBER, first.position)

    def _unary(self) -> Typed:
        token = self._token
        if self._is(TokenKind.OPERATOR, "+", "-"):
            self._deeper()
            self._next()
            operand = _of(Type.NUMBER, self._unary())
            self._depth -= 1
            # + is kept as "0 +", so that +'a' and a string that a name turns out to be are NULL alike.
            node: Node = Negative(operand) if token.text == "-" else Chain(Literal(0), (("+", operand),))
            return Typed(node, Type.NUMBER, token.position)
        if self._skip(TokenKind.OPERATOR, "("):
            self._deeper()
            found = self._condition()
            self._require(TokenKind.OPERATOR, ")")
            self._depth -= 1
            return found._replace(position=token.position)
        found_value = _value_of(token)
        if found_value is None:
            raise self._unexpected("a name, a value or (")
        self._next()
        return found_value


def _value_of(token: Token) -> Typed | None:
    match token.kind:
        case TokenKind.NAME:
            return Typed(Name(token.text), Type.ANY, token.position)
        case TokenKind.STRING:
            return Typed(Literal(token.text), Type.STRING, token.position)
        case TokenKind.NUMBER:
            return Typed(Literal(token.number), Type.NUMBER, token.position)
        case TokenKind.KEYWORD if token.text in ("TRUE", "FALSE"):
            return Typed(Literal(token.text == "TRUE"), Type.BOOLEAN, token.position)
        case _:
            return None


def _of(wanted: Type, found: Typed) -> Node:
    if not found.type.may_be(wanted):
        raise SelectorError(found.position, found.type.value, wanted.value)
    return found.node


def _comparison(operator: str, left: Typed, right: Typed) -> Node:
    if operator not in ("=", "<>"):
        return Comparison(operator, _of(Type.NUMBER, left), _of(Type.NUMBER, right))
    return Comparison(operator, left.node, _of(left.type, right))


def _negated(is_negated: bool, node: Node, position: int) -> Typed:
    return Typed(Not(node) if is_negated else node, Type.BOOLEAN, position)
