"""`overlane pipeline report`: the results of a run as an HTML page. Needs no Spark."""

from pathlib import Path
from typing import Annotated

import typer

from overlane.cli.exit_status import exit_on_error
from overlane.pipeline.object_store import is_object_store, opened
from overlane.pipeline.report.page import report as page_of

NO_REPORT = 1


def report(
    out: Annotated[str, typer.Option(help="Output directory of `overlane pipeline run`, or its object store.")],
    to: Annotated[
        Path | None,
        typer.Option(help="File to write (default: report.html in that directory, or in this one)."),
    ] = None,
) -> None:
    """Write an HTML report of the last run: load, correlated bursts, reliability, deadlines, latency, plan."""
    with exit_on_error():
        run = opened(out).latest()
    if run is None:
        typer.echo(f"overlane: {out}: no completed run; see `overlane pipeline run`", err=True)
        raise typer.Exit(NO_REPORT)
    written = to or (Path() if is_object_store(out) else Path(out.removeprefix("file://"))) / "report.html"
    try:
        written.write_text(page_of(run), encoding="utf-8")
    except OSError as refused:
        typer.echo(f"overlane: {written}: {refused.strerror}", err=True)
        raise typer.Exit(NO_REPORT) from None
    typer.echo(str(written))
