"""`overlane plan`: the solvers of `overlane.planning` for a person with a file."""

import typer

from overlane.cli.plan import allocate, casebase, channels, following, mirror, paths, reserve

app = typer.Typer(
    name="plan",
    help="Compute plans from a JSON file: paths, allocation, mirrors, channels, reservations; give brokers a plan.",
    no_args_is_help=True,
)
app.command()(paths.paths)
app.command()(paths.graph)
app.command()(channels.channels)
app.command()(reserve.reserve)
app.command()(allocate.allocate)
app.command()(mirror.mirror)
app.command()(casebase.casebase)
app.command()(following.apply)
app.command()(following.show)
app.command()(following.diff)
app.command()(following.rollback)
