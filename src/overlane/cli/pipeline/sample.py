"""`overlane pipeline sample`: telemetry of a made-up domain, with what is true about it beside."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress

from overlane.pipeline.sample import write_sample


def sample(
    lake: Annotated[Path, typer.Option(help="Where to write it: a new directory.")],
    brokers: Annotated[int, typer.Option(min=2, help="How many brokers there are.")] = 20,
    topics: Annotated[int, typer.Option(min=1, help="How many topics there are.")] = 1000,
    days: Annotated[float, typer.Option(min=1 / 24, help="How long they run.")] = 7,
    seed: Annotated[int, typer.Option(help="The same seed makes the same sample.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write telemetry with known truth: daily cycles, correlated bursts, failures, slow links."""
    if lake.exists() and any(lake.iterdir()):
        typer.echo(f"overlane: {lake}: there is something already", err=True)
        raise typer.Exit(2)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("hours")
        made = write_sample(
            lake,
            brokers,
            topics,
            max(1, round(days * 24)),
            seed,
            told=lambda done, of: progress.update(task, completed=done, total=of),
        )
    if as_json:
        typer.echo(msgspec.json.encode({"rows": made.rows, "files": made.files, "truth": str(made.truth)}))
    else:
        typer.echo(f"{made.rows:,} rows in {made.files:,} files; the truth is in {made.truth}")
