"""`overlane pipeline report`: what a run found, as a page for people. Spark is not needed for it."""

from pathlib import Path
from typing import Annotated

import typer

from overlane.pipeline.place import Place
from overlane.pipeline.report.page import report as page_of

NOTHING = 1


def report(
    out: Annotated[Path, typer.Option(help="The --out directory of `overlane pipeline run`.")],
    to: Annotated[
        Path | None, typer.Option(help="Where to write the page. Default: report.html in that directory.")
    ] = None,
) -> None:
    """Write one page of HTML about the last run: load, what rises together, reliability, deadlines, latency, plan."""
    run = Place(out).latest()
    if run is None:
        typer.echo(f"overlane: {out}: no run has been completed there; see `overlane pipeline run`", err=True)
        raise typer.Exit(NOTHING)
    written = to or out / "report.html"
    try:
        written.write_text(page_of(run), encoding="utf-8")
    except OSError as refused:
        typer.echo(f"overlane: {written}: {refused.strerror}", err=True)
        raise typer.Exit(NOTHING) from None
    typer.echo(str(written))
