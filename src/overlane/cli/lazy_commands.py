"""Groups of commands whose modules are imported when the command runs, and listed without being imported.

A command that needs a package which is not installed says so, with the line that installs it.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, NoReturn

import typer
from typer.core import TyperGroup

from overlane.cli.commands import Command
from overlane.cli.exit_status import INVALID_OPTION, UNAVAILABLE, fail
from overlane.cli.help_text import help_text
from overlane.cli.parameters import for_parser
from overlane.errors import Unavailable, coded
from overlane.extras import extra_with, missing_extra

_USAGE_ERROR: Any = typer.BadParameter.__base__
"""Of the parser, whichever library that is."""


class LazyCommands(TyperGroup):
    table: ClassVar[Mapping[str, Command]] = {}
    options: ClassVar[Mapping[str, str]] = {}
    """Besides --help, with their help."""

    def main(self, *args: Any, **more: Any) -> Any:
        """As the parser's own, with wrong options told in the form of all other errors."""
        if not more.get("standalone_mode", True):
            return super().main(*args, **more)
        more["standalone_mode"] = False
        try:
            status = super().main(*args, **more)
        except _USAGE_ERROR as error:
            _end_with(error)
        except typer.Abort:
            typer.echo("overlane: aborted", err=True)
            sys.exit(UNAVAILABLE)
        sys.exit(status if isinstance(status, int) else 0)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.table:
            return super().get_command(ctx, cmd_name)
        found = _imported(self.table[cmd_name].module, cmd_name)
        if isinstance(found, typer.Typer):
            return _with_plain_help(typer.main.get_group(found))
        one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        one.command(cmd_name)(for_parser(found))
        return _with_plain_help(typer.main.get_command(one))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        path = f"overlane{ctx.command_path.removeprefix(ctx.find_root().command_path)}"
        formatter.write(help_text(path, self.help or "", self.table, self.options) + "\n")


def _end_with(error: Any) -> NoReturn:
    message = error.format_message().rstrip(".")
    if not message or error.ctx is None or "Usage: " in message:  # a group without a command shows its help
        error.show()
    else:
        told = f"overlane: {message[:1].lower()}{message[1:]}; see {error.ctx.command_path} --help"
        typer.echo(coded(told, INVALID_OPTION), err=True)
    sys.exit(error.exit_code)


def group_of(commands: Mapping[str, Command], more_options: Mapping[str, str] | None = None) -> type[LazyCommands]:
    class Group(LazyCommands):
        table = commands
        options = more_options or {}

    return Group


def _with_plain_help(command: Any) -> Any:
    """Help as text, without boxes and without types of flags."""
    command.rich_markup_mode = None
    for one in getattr(command, "commands", {}).values():
        _with_plain_help(one)
    return command


def _imported(module: str, name: str) -> Any:
    """The function or the application of a command."""
    try:
        found = import_module(module)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").split(".")[0]
        if (extra := extra_with(package)) is None:
            raise
        fail(Unavailable(name, missing_extra(package, extra)))
    return getattr(found, "app", None) or getattr(found, name.replace("-", "_"))
