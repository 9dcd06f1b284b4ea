"""The command line: one application, one module per command.

The module of a command is imported when the command runs, so that a broker does not load the solvers of `plan`, and
`status` starts fast. `start` runs it, and answers what needs no parser.
"""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from overlane import __version__
from overlane.cli.commands import COMMANDS
from overlane.cli.start import ABOUT, help_text, run

class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        typer.echo(help_text())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = import_module(COMMANDS[cmd_name].module)
        found = getattr(module, "app", None) or getattr(module, cmd_name)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        one.command(cmd_name)(found)
        return typer.main.get_command(one)


app = typer.Typer(
    name="overlane",
    cls=_Commands,
    help=ABOUT,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _callback(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,  # noqa: ARG001
) -> None:
    """Options of the application itself."""


if __name__ == "__main__":
    run()
