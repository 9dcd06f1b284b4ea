"""The kinds of values in a network file: how each is parsed, and how it is described in messages.

A kind converts a TOML value to a plain value, or raises ValueError. Its `blank` replaces a rejected value, so that the
rest of the file can be checked and all errors are reported at once.
"""

import math
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from overlane.core.topics import check_filter, check_topic
from overlane.network.schema import Endpoint, Ends, History
from overlane.pubsub.access import ANONYMOUS, check_pattern
from overlane.quantities import SECOND, parse_duration, parse_rate, parse_size

T = TypeVar("T")
Word = TypeVar("Word", bound=str)

SIZE_BYTES_MAX = 2**40
RATE_BPS_MAX = 10**15

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_INTERFACE = re.compile(r"[^\s/:]{1,15}")
_ENDPOINT = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9][A-Za-z0-9._-]{0,252})):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class FieldKind(Generic[T]):
    allowed: str
    read: Callable[[object], T]
    blank: T
    words: Sequence[str] = ()  # the words it is chosen from, to guess what a misspelt one means


def duration(
    *, at_least_ns: int = 0, at_most_ns: int | None = None, allowed: str = 'a duration such as "14ms", "1.5s" or "2h"'
) -> FieldKind[int]:
    def read(value: object) -> int:
        return _within(parse_duration(_text(value)), at_least_ns, at_most_ns)

    return FieldKind(allowed, read, blank=max(at_least_ns, 0))


def seconds(at_least: int, at_most: int, allowed: str) -> FieldKind[int]:
    """A duration that is counted in whole seconds."""

    def read(value: object) -> int:
        whole, part = divmod(parse_duration(_text(value)), SECOND)
        if part:
            raise ValueError("finer than can be counted")
        return _within(whole, at_least, at_most)

    return FieldKind(allowed, read, blank=at_least)


def or_none(kind: FieldKind[int], none: int) -> FieldKind[int]:
    """The kind, or the word "none", which is counted as `none`."""

    def read(value: object) -> int:
        return none if value == "none" else kind.read(value)

    return FieldKind(f'{kind.allowed}, or "none"', read, kind.blank)


def command() -> FieldKind[tuple[str, ...]]:
    """A command and its arguments, which no shell sees."""

    def read(value: object) -> tuple[str, ...]:
        words = shlex.split(value) if isinstance(value, str) else _list(value)
        if not words or not all(isinstance(word, str) and word and word.isprintable() for word in words):
            raise ValueError("not a command")
        return tuple(map(str, words))

    return FieldKind('a command such as "./move now", or a list of its words', read, blank=())


def flag() -> FieldKind[bool]:
    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError("not a flag")
        return value

    return FieldKind("true or false", read, blank=False)


def rate() -> FieldKind[int]:
    def read(value: object) -> int:
        return _within(parse_rate(_text(value)), 1, RATE_BPS_MAX)

    return FieldKind('a rate such as "64kbit", "100Mbit" or "1Gbit"', read, blank=1)


def size(*, at_least: int, at_most: int = SIZE_BYTES_MAX, allowed: str) -> FieldKind[int]:
    def read(value: object) -> int:
        return _within(_integer(value) if not isinstance(value, str) else parse_size(value), at_least, at_most)

    return FieldKind(allowed, read, blank=at_least)


def integer(at_least: int, at_most: int, allowed: str) -> FieldKind[int]:
    def read(value: object) -> int:
        return _within(_integer(value), at_least, at_most)

    return FieldKind(allowed, read, blank=at_least)


def number(at_least: float, at_most: float, allowed: str) -> FieldKind[float]:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("not a number")
        if not at_least <= value <= at_most:  # also false for nan
            raise ValueError("out of range")
        return float(value)

    return FieldKind(allowed, read, blank=at_least)


def share() -> FieldKind[float]:
    return number(0.0, 1.0, "a number from 0 to 1")


def per_second() -> FieldKind[float]:
    return number(math.nextafter(0.0, 1.0), 1e7, "a number above 0, at most 10000000 a second")


def choice(words: Sequence[Word]) -> FieldKind[Word]:
    def read(value: object) -> Word:
        for word in words:
            if value == word:
                return word
        raise ValueError("none of the words")

    return FieldKind(_one_of(words), read, blank=words[0], words=words)


def broker(names: Sequence[str]) -> FieldKind[str]:
    known = frozenset(names)

    def read(value: object) -> str:
        return _among(known, value)

    return FieldKind("the name of a broker", read, blank="", words=names)


def group(names: Sequence[str]) -> FieldKind[tuple[str, ...]]:
    known = frozenset(names)

    def read(value: object) -> tuple[str, ...]:
        members = tuple(_among(known, name) for name in _list(value))
        if not 0 < len(set(members)) == len(members) < len(names):
            raise ValueError("none, all, or one twice")
        return members

    return FieldKind("a list of different brokers, not all of them", read, blank=(), words=names)


def ends(names: Sequence[str]) -> FieldKind[Ends]:
    known = frozenset(names)

    def read(value: object) -> Ends:
        one, other = (_among(known, name) for name in _list(value))
        if one == other:
            raise ValueError("no link joins a broker to itself")
        return one, other

    return FieldKind("a list of two different brokers", read, blank=("", ""), words=names)


def topic_filter() -> FieldKind[str]:
    def read(value: object) -> str:
        check_filter(_text(value))
        return _text(value)

    return FieldKind('an MQTT topic filter such as "alarms/#" or "sites/+/alarms"', read, blank="")


def topic_name() -> FieldKind[str]:
    def read(value: object) -> str:
        check_topic(_text(value))
        return _text(value)

    return FieldKind('a topic without wildcards such as "alarms/1"', read, blank="")


def access_user() -> FieldKind[str]:
    def read(value: object) -> str:
        user = _text(value)
        if not user.isprintable():
            raise ValueError("not printable")
        return user or ANONYMOUS

    return FieldKind('the name of a user, "*" for all who have logged in, or "anonymous" for the rest', read, blank="")


def access_pattern() -> FieldKind[str]:
    def read(value: object) -> str:
        check_pattern(_text(value))
        return _text(value)

    return FieldKind(
        'a topic filter such as "alarms/#" or "sensors/%u/+", with %u and %c as whole levels', read, blank=""
    )


def path(directory: Path | None) -> FieldKind[str]:
    """A path; where it is relative, to the directory."""

    def read(value: object) -> str:
        if not _text(value) or not _text(value).isprintable():
            raise ValueError("no path")
        return str(directory / _text(value)) if directory is not None else _text(value)

    return FieldKind("the path of a file, absolute or relative to this one", read, blank="")


def history() -> FieldKind[History]:
    def read(value: object) -> History:
        return "all" if value == "all" else _within(_integer(value), 0, 1_000_000)

    return FieldKind('a whole number from 0 to 1000000, or "all"', read, blank=0)


def endpoint() -> FieldKind[Endpoint]:
    def read(value: object) -> Endpoint:
        match = _ENDPOINT.fullmatch(_text(value))
        if match is None:
            raise ValueError("not host:port")
        ipv6, host, port = match.groups()
        return Endpoint(ipv6 or host, _within(int(port), 1, 65_535))

    return FieldKind('host:port such as "10.0.0.1:1883" or "[::1]:1883"', read, blank=Endpoint("", 0))


def text() -> FieldKind[str]:
    return FieldKind("a string", _text, blank="")


def name() -> FieldKind[str]:
    def read(value: object) -> str:
        if _NAME.fullmatch(_text(value)) is None:
            raise ValueError("not a name")
        return _text(value)

    return FieldKind(
        "a name of 1 to 64 letters, digits, '-', '_' and '.', with a letter or digit first", read, blank=""
    )


def names(at_least: int, at_most: int) -> FieldKind[tuple[str, ...]]:
    """Of hosts that need not be in the file."""

    def read(value: object) -> tuple[str, ...]:
        one = name()
        found = tuple(one.read(element) for element in _list(value))
        if not at_least <= len(set(found)) == len(found) <= at_most:
            raise ValueError("too few, too many, or one twice")
        return found

    return FieldKind(f"a list of {at_least} to {at_most} different names", read, blank=())


def interface() -> FieldKind[str]:
    def read(value: object) -> str:
        if _INTERFACE.fullmatch(_text(value)) is None:
            raise ValueError("not an interface")
        return _text(value)

    return FieldKind('a network interface of 1 to 15 characters such as "eth0"', read, blank="")


def is_function(text: str) -> bool:
    """Whether it is `package.module:function`."""
    module, colon, function = text.partition(":")
    return bool(colon) and function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a string")
    return value


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("not a whole number")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("not a list")
    return value


def _within(value: int, at_least: int, at_most: int | None = None) -> int:
    if value < at_least or (at_most is not None and value > at_most):
        raise ValueError("out of range")
    return value


def _among(known: frozenset[str], value: object) -> str:
    if _text(value) not in known:
        raise ValueError("not the name of a broker")
    return _text(value)


def _one_of(words: Sequence[str]) -> str:
    quoted = [f'"{word}"' for word in words]
    return " or ".join(quoted) if len(quoted) < 3 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
