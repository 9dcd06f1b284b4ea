"""`overlane plan`: the solvers of `overlane.planning` on problem files, and the rollout of plans."""

import typer

from overlane.cli.plan import allocate, case_base, channels, mirror, paths, reserve, rollout

app = typer.Typer(
    name="plan",
    help="Solve planning problems (paths, allocation, mirrors, channels, reservations) and roll out plans to brokers.",
    no_args_is_help=True,
)
app.command()(paths.paths)
app.command()(paths.graph)
app.command()(channels.channels)
app.command()(reserve.reserve)
app.command()(allocate.allocate)
app.command()(mirror.mirror)
app.command()(case_base.casebase)
app.command()(rollout.apply)
app.command()(rollout.show)
app.command()(rollout.diff)
app.command()(rollout.rollback)
