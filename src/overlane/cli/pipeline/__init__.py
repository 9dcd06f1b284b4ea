"""`overlane pipeline`: compute load profiles, reliability, compliance and plans from telemetry, on Spark."""

import typer

from overlane.cli.pipeline import report, rtt, run, sample, watch

app = typer.Typer(
    name="pipeline",
    help="Compute load profiles, reliability, compliance and plans from telemetry, on Spark.",
    no_args_is_help=True,
)
app.command()(run.run)
app.command("dry-run")(run.dry_run)
app.command()(report.report)
app.command()(watch.watch)
app.command()(sample.sample)
app.command("import-rtt")(rtt.import_rtt)
