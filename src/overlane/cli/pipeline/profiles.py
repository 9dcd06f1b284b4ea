"""`overlane pipeline profiles`: reserved beside used rates, and profiles to advertise. Needs no Spark."""

from dataclasses import asdict
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from overlane.cli.exit_status import exit_on_error, fail
from overlane.errors import Unavailable
from overlane.pipeline.object_store import opened
from overlane.pipeline.report.flow_profiles import FLOW_COLUMNS, KEEP, NOTHING, proposals
from overlane.pipeline.report.sections import Tables


def profiles(
    out: Annotated[str, typer.Option(help="Output directory of `overlane pipeline run`, or its object store.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Compare what was reserved with what was used, per flow, and propose the profiles to advertise."""
    with exit_on_error():
        run = opened(out).latest()
    if run is None:
        fail(Unavailable(out, "no completed run; see `overlane pipeline run`"))
    found = proposals(Tables(run).rows("reserved_flows"))
    if as_json:
        rows = [{**asdict(one), "advice": one.advice, "advertise": one.document()} for one in found]
        typer.echo(msgspec.json.encode(rows))
        return
    if not found:
        typer.echo("No flow was advertised.")
        return
    table = Table(*FLOW_COLUMNS, title="Advertised flows")
    for one in found:
        table.add_row(*one.cells())
    console = Console()
    console.print(table)
    for one in found:
        if one.advice not in (KEEP, NOTHING):
            console.print(one.command(), highlight=False, soft_wrap=True, markup=False)
