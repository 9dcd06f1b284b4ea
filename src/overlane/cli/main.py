"""The command line: one application, one module per command."""

import typer

from overlane import __version__
from overlane.cli import plan
from overlane.cli.broker import broker
from overlane.cli.passwd import passwd
from overlane.cli.simulate import simulate
from overlane.cli.up import up

app = typer.Typer(
    name="overlane",
    help="Publish/subscribe messaging across wide areas, within each topic's deadline.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(plan.app, name="plan")
app.command()(simulate)
app.command()(passwd)
app.command()(broker)
app.command()(up)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def run() -> None:
    app()


if __name__ == "__main__":
    run()
