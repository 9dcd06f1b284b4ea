"""`overlane pipeline forecast`: next week's peak of each item, from the tables of the last run. Needs no Spark."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from overlane.cli.exit_status import exit_on_error, fail
from overlane.cli.tables import OutputConsole, Wide, table
from overlane.errors import Unavailable
from overlane.pipeline.object_store import opened
from overlane.pipeline.plans.peak_forecast import WEEKS_MIN, PeakForecast, hourly_rates
from overlane.pipeline.plans.peak_forecast import forecast as forecast_of

ITEMS_SHOWN = 20


def forecast(
    out: Annotated[str, typer.Option(help="Output directory of `overlane pipeline run`, or its object store.")],
    item_levels: Annotated[int, typer.Option(min=1, help="Number of leading topic levels that form an item.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    wide: Wide = False,
) -> None:
    """Forecast next week's peak of each item, with an interval, from at least three weeks of telemetry."""
    with exit_on_error():
        run = opened(out).latest()
    if run is None:
        fail(Unavailable(out, "no completed run; see `overlane pipeline run`"))
    first_s, rates = hourly_rates(run, item_levels)
    found = forecast_of(first_s, rates)
    if found is None:
        hours = max((len(of) for of in rates.values()), default=0)
        fail(Unavailable(out, f"{hours} hours of telemetry; expected {WEEKS_MIN} weeks or more"))
    if as_json:
        typer.echo(msgspec.json.encode(asdict(found)))
    else:
        _show(found, wide)


def _show(found: PeakForecast, wide: bool) -> None:
    shown = table(
        *("item", "peak", "95 %", "expected at (UTC)", "last week"),
        numbers=("peak", "last week"),
        dropped_first=("last week", "95 %"),
    )
    for one in found.items[:ITEMS_SHOWN]:
        when = datetime.fromtimestamp(one.hour_s, UTC).strftime("%a %Y-%m-%d %H:%M")
        shown.add_row(one.item, f"{one.peak:,.1f}", f"{one.low:,.1f} to {one.high:,.1f}", when, f"{one.last_week:,.1f}")
    console = OutputConsole(wide)
    console.print("Next week, messages per second")
    console.print(shown)
    if len(found.items) > ITEMS_SHOWN:
        console.print(f"{len(found.items) - ITEMS_SHOWN} more items: --json")
    console.print(
        f"backtest of {found.judged} peaks in {found.weeks} weeks: median error {found.error:.1%}, "
        f"naive seasonal {found.naive_error:.1%}"
    )
