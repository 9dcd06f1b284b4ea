"""`overlane links`: what brokers have measured of the links to their neighbours."""

from rich.console import RenderableType
from rich.markup import escape

from overlane.cli.asking import DEFAULT
from overlane.cli.showing import (
    AsJson,
    Question,
    Round,
    Target,
    TokenFile,
    Watch,
    count,
    milliseconds,
    run,
    size,
    table,
)
from overlane.node.views import LinkList, LinkView

_NUMBERS = ("latency", "jitter", "loss", "waiting", "queue")
_COLOURS = {"up": "green", "suspect": "yellow", "failed": "red", "down": "red"}


def links(
    target: Target = DEFAULT,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
) -> None:
    """Show links: state, transport, latency one way, jitter, loss, and what waits for them."""
    run(Question("/links", {}, LinkList, _show), target, as_json, watch, token_file)


def _show(now: Round[LinkList]) -> RenderableType:
    shown = table("broker", "neighbour", "state", "transport", *_NUMBERS, numbers=_NUMBERS)
    for name, found in now.answers:
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
    return shown


def transport(link: LinkView) -> str:
    """tcp+udp where what has a deadline goes in datagrams; what is to be known besides, in brackets."""
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
