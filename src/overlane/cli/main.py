"""The command line: one application, one module per command.

The module of a command is imported when the command runs, so that a broker does not load the solvers of `plan`, and
`status` starts fast.
"""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from overlane import __version__

COMMANDS = {
    "demo": "overlane.cli.simulation.demo",
    "up": "overlane.cli.brokers.up",
    "broker": "overlane.cli.brokers.broker",
    "pub": "overlane.cli.client.pub",
    "sub": "overlane.cli.client.sub",
    "status": "overlane.cli.admin.status",
    "clients": "overlane.cli.admin.clients",
    "topics": "overlane.cli.admin.topics",
    "links": "overlane.cli.admin.links",
    "routes": "overlane.cli.admin.routes",
    "join": "overlane.cli.brokers.join",
    "leave": "overlane.cli.brokers.leave",
    "passwd": "overlane.cli.brokers.passwd",
    "zookeeper": "overlane.cli.coordination.zookeeper",
    "testbed": "overlane.cli.simulation.testbed",
    "monitor": "overlane.cli.brokers.monitor",
    "simulate": "overlane.cli.simulation.simulate",
    "plan": "overlane.cli.plan",
    "pipeline": "overlane.cli.pipeline",
}
"""The module of each command: it has a function of that name, or an `app` with subcommands."""


class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = import_module(COMMANDS[cmd_name])
        found = getattr(module, "app", None) or getattr(module, cmd_name)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        one.command(cmd_name)(found)
        return typer.main.get_command(one)


app = typer.Typer(
    name="overlane",
    cls=_Commands,
    help="Publish/subscribe messaging across wide areas, within each topic's deadline.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _callback() -> None:
    """With one command registered here, typer would take the application for that command."""


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def run() -> None:
    app()


if __name__ == "__main__":
    run()
