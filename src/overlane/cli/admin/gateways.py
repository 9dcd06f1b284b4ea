"""`overlane gateways`: gateways to foreign brokers."""

import time

from rich.console import Group, RenderableType
from rich.markup import escape

from overlane.adminapi.views import GatewayList, GatewayView, LaneView
from overlane.cli.admin.admin_client import DEFAULT
from overlane.cli.output import AsJson, Query, QueryResult, Target, TokenFile, Watch, run_query
from overlane.cli.tables import Wide, count, span, table

_NUMBERS = ("since", "in", "in/s", "in backlog", "out", "out/s", "out backlog", "not passed")
_DROPPED_FIRST = ("since", "in/s", "out/s", "to", "in", "out", "broker")
_COLOURS = {"up": "green", "connecting": "yellow", "down": "red"}


def gateways(
    target: Target = DEFAULT,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
    wide: Wide = False,
) -> None:
    """Show gateways to foreign brokers: state, traffic in both directions, backlog, and the last error."""
    run_query(Query("/gateways", {}, GatewayList, _show), target, as_json, watch, token_file, wide)


def _show(result: QueryResult[GatewayList]) -> RenderableType:
    shown = table("broker", "gateway", "to", "state", *_NUMBERS, numbers=_NUMBERS, dropped_first=_DROPPED_FIRST)
    errors = []
    for name, found in result.answers:
        for gateway in found.items:
            shown.add_row(escape(name), escape(gateway.name), escape(gateway.to), *_cells(gateway))
            if gateway.last_error:
                errors.append(f"{escape(gateway.name)}: last error: {escape(gateway.last_error)}")
    return Group(shown, *errors)


def _cells(gateway: GatewayView) -> tuple[str, ...]:
    colour = _COLOURS.get(gateway.state, "red")
    since = span(max(0.0, time.time() - gateway.since)) if gateway.since else "-"
    lanes = (*_lane(gateway.inwards), *_lane(gateway.outwards))
    lost = sum(lane.refused + lane.dropped for lane in (gateway.inwards, gateway.outwards))
    return f"[{colour}]{escape(gateway.state)}[/]", since, *lanes, count(lost)


def _lane(lane: LaneView) -> tuple[str, str, str]:
    backlog = count(lane.waiting if lane.backlog is None else max(lane.waiting, lane.backlog))
    return count(lane.passed), f"{lane.per_second:g}", backlog + (" (metered)" if lane.is_metered else "")
