"""Plain options: the words of a command, read by its signature without the parser's libraries.

Only words that can mean one thing are read: known options once each, flags, texts, paths and choices, and arguments
that do not begin with a dash. For everything else, above all for mistakes and --help, there is the parser.
"""

import inspect
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args

from overlane.cli.parameters import Argument, parameters_of


def plain_options(command: Callable[..., None], words: Sequence[str]) -> dict[str, Any] | None:
    """The parameters of a command; None if the parser has to look at the words."""
    options, arguments = _parameters(command)
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            option, separator, text = word.partition("=")
            name, kind = options.get(option, ("", NoneType))
            if kind is bool and not separator:
                text = ""
            elif not separator:
                if not rest or rest[0].startswith("-"):
                    return None
                text = rest.pop(0)
            elif kind is bool:
                return None
        elif arguments:
            (name, kind), text = arguments.pop(0), word
        else:
            return None
        if name in found or (value := _value(kind, text)) is None:
            return None
        found[name] = value
    parameters = inspect.signature(command).parameters
    is_complete = all(parameters[name].default is not inspect.Parameter.empty for name, _ in arguments)
    return found if is_complete and words else None


def _parameters(command: Callable[..., None]) -> tuple[dict[str, tuple[str, type]], list[tuple[str, type]]]:
    """Name and type of the parameters: by option, and of the arguments in their order."""
    options: dict[str, tuple[str, type]] = {}
    arguments: list[tuple[str, type]] = []
    for name, (kind, parameter) in parameters_of(command).items():
        if isinstance(kind, UnionType):
            (kind,) = (one for one in get_args(kind) if one is not NoneType)
        if isinstance(parameter, Argument):
            arguments.append((name, kind))
        else:
            options |= dict.fromkeys(parameter.words, (name, kind))
    return options, arguments


def _value(kind: type, text: str) -> Any:
    """None if it is none of that kind."""
    if kind is bool:
        return True
    if kind in (str, Path):
        return kind(text)
    if issubclass(kind, StrEnum):
        return kind(text) if text in list(kind) else None
    return None
