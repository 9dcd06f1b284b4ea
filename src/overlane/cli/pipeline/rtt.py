"""`overlane pipeline import-rtt`: import measured round-trip times as link telemetry."""

from pathlib import Path
from typing import Annotated

import typer

from overlane.cli.exit_status import fail
from overlane.errors import ConfigError
from overlane.pipeline.samples import rtt


def import_rtt(
    history: Annotated[
        Path,
        typer.Argument(metavar="FILE.npz", help="NumPy file with an array rtt: slices x nodes x nodes, in seconds."),
    ],
    lake: Annotated[Path, typer.Option(help="Lake to write to.")],
    slice_s: Annotated[int, typer.Option(min=1, help="Length of a slice in seconds.")] = rtt.SLICE_S,
) -> None:
    """Convert a history of round-trip times into link telemetry, for the same tables."""
    try:
        rows = rtt.import_rtt(history, lake, slice_s)
    except ConfigError as wrong:
        fail(wrong)
    typer.echo(f"{rows:,} link rows written to {lake}")
