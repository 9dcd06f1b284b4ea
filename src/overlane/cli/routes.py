"""`overlane routes`: which way topics go, and why."""

from rich.console import RenderableType
from rich.markup import escape

from overlane.cli.asking import DEFAULT
from overlane.cli.showing import AsJson, Question, Round, Target, TokenFile, Watch, milliseconds, run, table
from overlane.node.views import RouteList, RouteView

TOPICS_SHOWN = 3
PATHS_SHOWN = 3

_NUMBERS = ("deadline", "latency")


def routes(
    target: Target = DEFAULT,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
) -> None:
    """Show routes: topics, destinations, paths with their latency, and why they were chosen."""
    run(Question("/routes", {}, RouteList, _show), target, as_json, watch, token_file)


def _show(now: Round[RouteList]) -> RenderableType:
    shown = table("broker", "topics", "to", "deadline", "latency", "paths", "routing", "cause", numbers=_NUMBERS)
    for name, found in now.answers:
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
                    escape(route.cause) + ("" if route.is_established else " [dim](being set up)[/]"),
                )
    return shown


def _latency(route: RouteView, destination: str) -> str:
    latency_ms = route.latency_ms.get(destination)
    is_late = latency_ms is not None and route.deadline_ms is not None and latency_ms > route.deadline_ms
    return f"[red]{milliseconds(latency_ms)}[/]" if is_late else milliseconds(latency_ms)


def _paths(route: RouteView, destination: str) -> str:
    ways = tuple(" -> ".join(path) for path in route.paths.get(destination, ()))
    return _some(ways, PATHS_SHOWN, "; ") or "[red]none[/]"


def _some(items: tuple[str, ...], shown_max: int, between: str = ", ") -> str:
    more = [f"{len(items) - shown_max} more"] if len(items) > shown_max else []
    return escape(between.join([*items[:shown_max], *more]))
