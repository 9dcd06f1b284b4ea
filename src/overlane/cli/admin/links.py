"""`overlane links`: links between brokers, as measured at each end."""

from rich.console import RenderableType
from rich.markup import escape

from overlane.adminapi.views import LinkList, LinkView
from overlane.cli.admin.admin_client import DEFAULT
from overlane.cli.output import AsJson, Query, QueryResult, Target, TokenFile, Watch, run_query
from overlane.cli.tables import Wide, count, milliseconds, size, table

_NUMBERS = ("latency", "jitter", "loss", "waiting", "queue")
_DROPPED_FIRST = ("queue", "jitter", "waiting", "transport")
_PATH_COLOURS = {
    "in_use": "green",
    "copies": "yellow",
    "standby": "green",
    "silent": "yellow",
    "probing": "yellow",
    "gone": "red",
}
_COLOURS = {"up": "green", "suspect": "yellow", "failed": "red", "down": "red"}


def links(
    target: Target = DEFAULT,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
    wide: Wide = False,
) -> None:
    """Show links and their paths: state, transport, one-way latency, jitter, loss and queue."""
    run_query(Query("/links", {}, LinkList, _show), target, as_json, watch, token_file, wide)


def _show(result: QueryResult[LinkList]) -> RenderableType:
    columns = ("broker", "neighbour", "state", "transport", *_NUMBERS)
    shown = table(*columns, numbers=_NUMBERS, dropped_first=_DROPPED_FIRST)
    for name, found in result.answers:
        for link in found.items:
            colour = _COLOURS[link.state]
            shown.add_row(
                escape(name),
                escape(link.peer),
                f"[{colour}]{link.state}[/]",
                transport(link),
                milliseconds(link.latency_ms),
                milliseconds(link.jitter_ms),
                "-" if link.loss is None else f"{100 * link.loss:.1f} %",
                count(link.queue_parcels),
                size(link.queue_bytes),
            )
            for path in link.paths:
                shown.add_row(
                    "",
                    f"  {escape(path.local)} > {escape(path.remote)}",
                    f"[{_PATH_COLOURS[path.state]}]{path.state.replace('_', ' ')}[/]",
                    "tcp+udp" if path.has_connection else "udp",
                    milliseconds(path.latency_ms),
                    "",
                    f"{100 * path.loss:.1f} %",
                    "",
                    "",
                )
    return shown


def transport(link: LinkView) -> str:
    """tcp+udp if messages with a deadline use UDP; the state of the UDP path in parentheses."""
    if link.state == "down":
        return "-"
    if link.datagrams is None:
        return "tcp"
    match link.datagrams.state:
        case "open":
            return "tcp+udp"
        case "doubted":
            return "tcp+udp (doubted)"
        case "probing":
            return "tcp (udp probing)"
