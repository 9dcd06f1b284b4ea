"""The tokens of a selector.

    name       letter, _ or $, then letters, digits, _ and $; parts joined by dots. A part in double quotes may be
               anything ("" is a quote in it), a part behind a dot may be a number: reading.0."content-type"
    string     'text', with '' for a quote in it
    number     12, 0.5, .5, 1e3; a suffix of Java's (L, F, D) is allowed and means nothing
    operator   = <> < <= > >= + - * / ( ) ,
    keyword    in any case: AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE

Names are case-sensitive. `!=` is told apart from a stray character, because it is so common elsewhere.
"""

import re
from enum import Enum, auto
from math import isfinite
from typing import NamedTuple

from overlane.selectors.errors import SelectorError

LENGTH_MAX = 4096
"""Characters of a selector."""
KEYWORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"})

_FOUND_MAX = 40
_PART = r'[^\W\d][\w$]*|\$[\w$]*|"(?:[^"]|"")*"'
_TOKEN = re.compile(
    rf"""
    (?P<space>   \s+ )
  | (?P<number>  (?: \d+ (?: \.\d* )? | \.\d+ ) (?: [eE][+-]?\d+ )? [lLfFdD]? (?! [\w.] ) )
  | (?P<name>    (?: {_PART} ) (?: \. (?: {_PART} | \d+ ) )* )
  | (?P<string>  ' (?: [^'] | '' )* ' )
  | (?P<operator> <> | <= | >= | [=<>+\-*/(),] )
    """,
    re.VERBOSE,
)
_NAME_PART = re.compile(r'"((?:[^"]|"")*)"|([^.]+)')


class TokenKind(Enum):
    NAME = auto()
    STRING = auto()
    NUMBER = auto()
    OPERATOR = auto()
    KEYWORD = auto()
    END = auto()


class Token(NamedTuple):
    """`text`: a keyword in capitals, an operator, a name in its canonical form, a string without its quotes."""

    kind: TokenKind
    text: str
    position: int
    number: int | float = 0

    def __str__(self) -> str:
        match self.kind:
            case TokenKind.END:
                return "the end"
            case TokenKind.STRING:
                return f"the string {shortened(self.text)!a}"
            case _:
                return shortened(self.text)


def tokens(text: str) -> list[Token]:
    """All tokens, with one of the kind END behind them; SelectorError."""
    if len(text) > LENGTH_MAX:
        raise SelectorError(LENGTH_MAX + 1, f"{len(text)} characters", f"at most {LENGTH_MAX}")
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unreadable(text, at)
        if match.lastgroup != "space":
            found.append(_token(str(match.lastgroup), match.group(), at + 1))
        at = match.end()
    found.append(Token(TokenKind.END, "", len(text) + 1))
    return found


def _token(kind: str, text: str, position: int) -> Token:
    match kind:
        case "number":
            return Token(TokenKind.NUMBER, text, position, _number(text, position))
        case "string":
            return Token(TokenKind.STRING, text[1:-1].replace("''", "'"), position)
        case "operator":
            return Token(TokenKind.OPERATOR, text, position)
        case _ if text.upper() in KEYWORDS:
            return Token(TokenKind.KEYWORD, text.upper(), position)
        case _:
            return Token(TokenKind.NAME, join_name(split_name(text)), position)


def _number(text: str, position: int) -> int | float:
    plain = text.rstrip("lLfFdD")
    value = int(plain) if plain.isdigit() else float(plain)
    if abs(value) >= 2**63 or not isfinite(value):
        value = float(value) if len(plain) < 300 else float("inf")
    if not isfinite(value):
        raise SelectorError(position, shortened(text), "a number of at most 1.7e308")
    return value


def _unreadable(text: str, at: int) -> SelectorError:
    rest = shortened(text[at:])
    if text[at] == "'":
        return SelectorError(at + 1, rest, "a quote ' at the end of the string")
    if text[at] == '"':
        return SelectorError(at + 1, rest, 'a quote " at the end of the name')
    if text.startswith(("!=", "=="), at):
        return SelectorError(at + 1, text[at : at + 2], "<>" if text[at] == "!" else "=")
    if text[at].isdigit() or text[at] == ".":
        return SelectorError(at + 1, rest.split()[0], "a number, or a name that begins with a letter, _ or $")
    return SelectorError(at + 1, f"{text[at]!a}", "a name, a value or an operator")


def shortened(text: str) -> str:
    return text if len(text) <= _FOUND_MAX else f"{text[:_FOUND_MAX]}..."


# Names: parts joined by dots. In the canonical form only parts that need quotes have them.


def split_name(name: str) -> tuple[str, ...]:
    """The parts of a name, without quotes."""
    found = _NAME_PART.findall(name)
    return tuple(plain or quoted.replace('""', '"') for quoted, plain in found)


def join_name(parts: tuple[str, ...]) -> str:
    return ".".join(_quoted(part) if not part or "." in part or '"' in part else part for part in parts)


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"'
