"""`overlane routes`: the paths of topics, and why they were chosen."""

from rich.console import RenderableType
from rich.markup import escape

from overlane.adminapi.views import RouteList, RouteView
from overlane.cli.admin.admin_client import DEFAULT
from overlane.cli.output import AsJson, Query, QueryResult, Target, TokenFile, Watch, run_query
from overlane.cli.tables import Wide, milliseconds, table

TOPICS_SHOWN = 3
PATHS_SHOWN = 3

_NUMBERS = ("deadline", "latency")
_DROPPED_FIRST = ("routing", "deadline", "latency")
_WRAPPED = ("topics", "paths", "cause")


def routes(
    target: Target = DEFAULT,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
    wide: Wide = False,
) -> None:
    """Show routes: topics, destinations, paths, latency, and the cause of the last change."""
    run_query(Query("/routes", {}, RouteList, _show), target, as_json, watch, token_file, wide)


def _show(result: QueryResult[RouteList]) -> RenderableType:
    shown = table(
        *("broker", "topics", "to", "deadline", "latency", "paths", "routing", "cause"),
        numbers=_NUMBERS,
        dropped_first=_DROPPED_FIRST,
        wrapped=_WRAPPED,
    )
    for name, found in result.answers:
        for route in found.items:
            topics = _some(route.topics, TOPICS_SHOWN) or "-"
            for destination in route.destinations:
                shown.add_row(
                    escape(name),
                    topics,
                    escape(destination),
                    milliseconds(route.deadline_ms),
                    _latency(route, destination),
                    _paths(route, destination),
                    f"{route.routing}{', reliable' if route.reliable else ''}",
                    _cause(route) + _unmet(route, destination),
                )
    return shown


def _cause(route: RouteView) -> str:
    suspects = f" [yellow](suspect: {escape(', '.join(route.suspects))})[/]" if route.suspects else ""
    return escape(route.cause) + suspects + ("" if route.is_established else " [dim](being set up)[/]")


def _unmet(route: RouteView, destination: str) -> str:
    unmet = route.unmet.get(destination)
    return f" [red](not met: {escape(unmet)})[/]" if unmet else ""


def _latency(route: RouteView, destination: str) -> str:
    latency_ms = route.latency_ms.get(destination)
    is_late = latency_ms is not None and route.deadline_ms is not None and latency_ms > route.deadline_ms
    return f"[red]{milliseconds(latency_ms)}[/]" if is_late else milliseconds(latency_ms)


def _paths(route: RouteView, destination: str) -> str:
    paths = tuple(" -> ".join(path) for path in route.paths.get(destination, ()))
    return _some(paths, PATHS_SHOWN, "; ") or "[red]none[/]"


def _some(items: tuple[str, ...], shown_max: int, between: str = ", ") -> str:
    more = [f"{len(items) - shown_max} more"] if len(items) > shown_max else []
    return escape(between.join([*items[:shown_max], *more]))
