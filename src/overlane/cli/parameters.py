"""Options and arguments of a command that also runs without the parser: a broker, whose process is to stay small.

Typer and what it loads take some MiB. `plain_options` reads the words of such a command by these values; where the
parser is needed, `for_parser` gives it what it expects.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints


class Parameter:
    """`words`: the names of an option. `settings`: as those of typer.Option or typer.Argument."""

    def __init__(self, *words: str, **settings: Any) -> None:
        self.words = words
        self.settings = settings


class Argument(Parameter):
    pass


class Option(Parameter):
    pass


def parameters_of(command: Callable[..., None]) -> dict[str, tuple[Any, Parameter]]:
    """Type and declaration of each parameter that is declared by this module."""
    found = {}
    for name, hint in get_type_hints(command, include_extras=True).items():
        if get_origin(hint) is Annotated:
            kind, *declared = get_args(hint)
            if declared and isinstance(declared[0], Parameter):
                found[name] = kind, declared[0]
    return found


def for_parser(command: Callable[..., None]) -> Callable[..., None]:
    """The same command, with parameters that typer reads."""
    import typer

    if not (declared := parameters_of(command)):
        return command

    @wraps(command)
    def run(**values: Any) -> None:
        command(**values)

    signature, hints = inspect.signature(command), {}
    for name, (kind, parameter) in declared.items():
        make = typer.Argument if isinstance(parameter, Argument) else typer.Option
        hints[name] = Annotated[kind, make(*parameter.words, **parameter.settings)]
    run.__annotations__ = hints
    of_parser = [one.replace(annotation=hints[name]) for name, one in signature.parameters.items()]
    run.__signature__ = signature.replace(parameters=of_parser)  # type: ignore[attr-defined]  # as inspect documents it
    return run
