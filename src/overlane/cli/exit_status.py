"""Errors become a message with a code (docs/errors.md) on standard error and an exit status, never a traceback.

Status 2: invalid input, such as a wrong network file or option. Status 1: something needed is unavailable.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from overlane.errors import ConfigError, OverlaneError, Unavailable, coded

UNAVAILABLE = 1
INVALID_INPUT = 2
INTERRUPTED = 130
"""After Ctrl-C."""
INVALID_OPTION = "OVL-102"
"""The code of what is wrong with the words of a command."""


@contextmanager
def exit_on_error() -> Iterator[None]:
    try:
        yield
    except (ConfigError, Unavailable) as error:
        fail(error)


def fail(error: OverlaneError | str, status: int | None = None, code: str = INVALID_OPTION) -> NoReturn:
    """End the command with a message. What is wrong in a file begins with its name and line, as editors expect it."""
    if isinstance(error, OverlaneError):
        code = error.error_code
        status = status or (UNAVAILABLE if isinstance(error, Unavailable) else INVALID_INPUT)
    prefix = "" if isinstance(error, ConfigError) else "overlane: "
    import typer  # a broker that runs does without it

    typer.echo(coded(f"{prefix}{error}", code), err=True)
    raise typer.Exit(status or INVALID_INPUT)
