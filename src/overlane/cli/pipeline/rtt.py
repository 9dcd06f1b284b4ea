"""`overlane pipeline import-rtt`: measured round trips of another network as telemetry of links."""

from pathlib import Path
from typing import Annotated

import typer

from overlane.errors import ConfigError
from overlane.pipeline import rtt


def import_rtt(
    history: Annotated[Path, typer.Argument(metavar="FILE.npz", help="An array rtt: slices x nodes x nodes, seconds.")],
    lake: Annotated[Path, typer.Option(help="The lake to write into.")],
    slice_s: Annotated[int, typer.Option(min=1, help="How many seconds a slice is long.")] = rtt.SLICE_S,
) -> None:
    """Turn a history of round-trip times into telemetry of links, for the same tables."""
    try:
        rows = rtt.import_rtt(history, lake, slice_s)
    except ConfigError as wrong:
        typer.echo(f"overlane: {wrong}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{rows:,} rows of links in {lake}")
