"""`overlane pipeline sample`: generate telemetry of an artificial domain, and its ground truth."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress

from overlane.pipeline.samples.sample import write_sample


def sample(
    lake: Annotated[Path, typer.Option(help="Lake to create: a new or empty directory.")],
    brokers: Annotated[int, typer.Option(min=2, help="Number of brokers.")] = 20,
    topics: Annotated[int, typer.Option(min=1, help="Number of topics.")] = 1000,
    days: Annotated[float, typer.Option(min=1 / 24, help="Number of days.")] = 7,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Generate telemetry with known ground truth: daily cycles, correlated bursts, failures, slow links."""
    if lake.exists() and any(lake.iterdir()):
        typer.echo(f"overlane: {lake}: not empty", err=True)
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
        typer.echo(f"{made.rows:,} rows in {made.files:,} files; ground truth in {made.truth}")
