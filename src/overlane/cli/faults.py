"""What a command says when something is wrong: a sentence on standard error and a status, never a traceback.

Status 2 is the user's to mend, 1 the environment's.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from overlane.errors import ConfigError, Unavailable


@contextmanager
def told() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except Unavailable as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
