"""`overlane pipeline`: compute load profiles, reliability, compliance and plans from telemetry, on Spark."""

import typer

from overlane.cli.commands import Command
from overlane.cli.lazy_commands import group_of

__all__: list[str] = []

COMMANDS = {
    "run": Command("overlane.cli.pipeline.run", "Compute all tables from the lake."),
    "dry-run": Command(
        "overlane.cli.pipeline.run", "Check that all tables can be computed, and list them; writes nothing."
    ),
    "report": Command(
        "overlane.cli.pipeline.report",
        "Write an HTML report of the last run: load, correlated bursts, reliability, deadlines, latency, plan.",
    ),
    "forecast": Command(
        "overlane.cli.pipeline.forecast",
        "Forecast next week's peak of each item, with an interval, from at least three weeks of telemetry.",
    ),
    "profiles": Command(
        "overlane.cli.pipeline.profiles",
        "Compare what was reserved with what was used, per flow, and propose the profiles to advertise.",
    ),
    "watch": Command(
        "overlane.cli.pipeline.watch",
        "Compute the share of messages in time per topic, live; publish an alert when it falls below the target.",
    ),
    "sample": Command(
        "overlane.cli.pipeline.sample",
        "Generate telemetry with known ground truth: daily cycles, correlated bursts, failures, slow links.",
    ),
    "import-rtt": Command(
        "overlane.cli.pipeline.rtt", "Convert a history of round-trip times into link telemetry, for the same tables."
    ),
}

app = typer.Typer(
    name="pipeline",
    cls=group_of(COMMANDS),
    help="Compute load profiles, reliability, compliance and plans from telemetry, on Spark.",
    no_args_is_help=True,
)


@app.callback()
def _callback() -> None:
    """Without options."""
