"""The command line: one application, one module per command.

The module of a command is imported when the command runs, so that a broker does not load the solvers of `plan`, and
`status` starts fast. `start` runs it, and answers what needs no parser.
"""

from typing import Annotated

import typer

from overlane.build_kind import version_text
from overlane.cli.commands import COMMANDS
from overlane.cli.lazy_commands import group_of
from overlane.cli.start import ABOUT, OPTIONS, run

__all__ = ["app", "run"]

app = typer.Typer(
    name="overlane",
    cls=group_of(COMMANDS, OPTIONS),
    help=ABOUT,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(version_text())
        raise typer.Exit


@app.callback()
def _callback(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """Options of the application itself."""


if __name__ == "__main__":
    run()
