"""`overlane reservations`: who has which rate and latency, over which path, and what links have promised.

Exit status: 0 at least one broker answered, 1 none did, 2 the file, the address or an option is invalid.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from overlane.adminapi.views import LinkReservationsView, ReservationsView, ReservationView, TSpecView
from overlane.cli.admin.admin_client import DEFAULT, get_bytes, targets_of
from overlane.cli.exit_status import exit_on_error, fail
from overlane.cli.output import AsJson, Query, QueryResult, Target, TokenFile, Watch, run_query
from overlane.cli.tables import Wide, milliseconds, table
from overlane.core.routing.paths import paths_in

_NUMBERS = ("reserved", "latency", "bound", "measured", "max", "messages", "late", "rate", "promised", "share")
_DROPPED_FIRST = (
    *("max", "messages", "bound", "traffic", "class", "reserved", "late", "measured"),
    *("latency", "broker"),
)
NOT_WRITTEN = 1


def reservations(
    target: Target = DEFAULT,
    what_if: Annotated[
        Path | None,
        typer.Option(
            "--what-if",
            metavar="FILE",
            help="Show which requests in FILE would be admitted in addition to the present reservations.",
        ),
    ] = None,
    pcap: Annotated[
        Path | None,
        typer.Option("--pcap", metavar="FILE", help="Write the latest RSVP messages of the brokers to FILE."),
    ] = None,
    htb: Annotated[
        str | None,
        typer.Option(
            "--htb",
            metavar="DEVICE=RATE",
            help="Print tc commands that keep the rates of links with dscp free on an interface, as in eth0=1Gbit.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="With --htb: the broker of this host.")] = None,
    as_json: AsJson = False,
    watch: Watch = False,
    token_file: TokenFile = None,
    wide: Wide = False,
) -> None:
    """Show reservations: class, traffic, rate, path, share of each link, delay bound and measured delay."""
    if htb is not None:
        _print_classes(target, name, htb)
        return
    if pcap is not None:
        _write_capture(target, pcap, token_file)
        return
    if what_if is not None:
        from overlane.cli.admin.reservations_what_if import what_if_admitted

        what_if_admitted(target, what_if, as_json, token_file)
        return
    run_query(Query("/reservations", {}, ReservationsView, _show), target, as_json, watch, token_file, wide)


def _print_classes(target: str, name: str | None, htb: str) -> None:
    from overlane.network.htb import htb_commands
    from overlane.network.reading import read_network
    from overlane.quantities import parse_rate

    with exit_on_error():
        network = read_network(Path(target))
    names = [broker.name for broker in network.brokers]
    if name not in names:
        fail(f"--name: got {name or 'nothing'}; expected a broker of {target}: {', '.join(names)}")
    device, _, rate = htb.partition("=")
    try:
        if not re.fullmatch(r"[\w.-]{1,15}", device, re.ASCII):
            raise ValueError(f"got {htb}; expected an interface and its rate, as in eth0=1Gbit")
        commands = htb_commands(network, name, device, parse_rate(rate))
    except ValueError as error:
        fail(f"--htb: {error}")
    typer.echo("\n".join(commands))


def _write_capture(target: str, file: Path, token_file: Path | None) -> None:
    from overlane.reservation.rsvp.pcap import merged

    with exit_on_error():
        targets = targets_of(target, token_file)
    captures = get_bytes(targets, "/reservations/capture")
    found = [one for one in captures if isinstance(one, bytes)]
    for one in captures:
        if isinstance(one, str):
            typer.echo(one, err=True)
    if not found:
        raise typer.Exit(NOT_WRITTEN)
    try:
        file.write_bytes(merged(found))
    except OSError as error:
        typer.echo(f"{file}: {error.strerror}", err=True)
        raise typer.Exit(NOT_WRITTEN) from None


def _show(result: QueryResult[ReservationsView]) -> RenderableType:
    trees = trees_of(dict(result.answers))
    shown = table(
        *("broker", "client", "filter", "class", "traffic", "reserved", "latency", "bound", "measured", "max"),
        *("messages", "late", "path", "state"),
        numbers=_NUMBERS,
        dropped_first=_DROPPED_FIRST,
        wrapped=("path", "state"),
    )
    for name, found in result.answers:
        for one in found.reservations:
            shown.add_row(
                escape(name),
                escape(one.client),
                escape(one.filter),
                one.service or f"[red]none[/] [dim]({one.asked})[/]",
                _traffic(one.tspec),
                _rate(one.reserved),
                milliseconds(one.latency_ms),
                milliseconds(one.bound_ms),
                milliseconds(one.delay_mean_ms),
                milliseconds(one.delay_max_ms),
                str(one.messages),
                f"[red]{one.late}[/]" if one.late else "0",
                escape("; ".join(" -> ".join(path) for path in paths_to(one, name, trees))) or "-",
                _state(one),
            )
    return Group(shown, "", _advertised(result), "", _links(result))


def _advertised(result: QueryResult[ReservationsView]) -> RenderableType:
    shown = table(
        *("broker", "advertises", "traffic", "excess", "asked for by", "messages", "beyond"),
        numbers=_NUMBERS,
        dropped_first=("messages", "excess", "traffic", "beyond"),
        wrapped=("asked for by",),
    )
    for name, found in result.answers:
        for one in found.advertised:
            row = name, one.filter, _traffic(one.tspec), one.excess, ", ".join(one.subscribers) or "-"
            shown.add_row(*map(escape, row), str(one.messages), str(one.excess_messages))
    return shown


def _links(result: QueryResult[ReservationsView]) -> RenderableType:
    shown = table(
        *("link", "rate", "promised", "share", "reservations"),
        numbers=_NUMBERS,
        dropped_first=("rate", "promised"),
        wrapped=("reservations",),
    )
    for name, found in result.answers:
        for link in found.links:
            flows = ", ".join(f"{one.filter} {one.share:.1%}" for one in link.flows)
            shown.add_row(
                escape(f"{name} -> {link.peer}"),
                _rate(link.rate) if link.rate is not None else "unknown",
                _rate(link.promised),
                _share(link),
                escape(flows) or "-",
            )
    return shown


def trees_of(answers: Mapping[str, ReservationsView]) -> dict[str, dict[str, tuple[tuple[str, str], ...]]]:
    """By advertised filter, the publishers' brokers and their trees."""
    found: dict[str, dict[str, tuple[tuple[str, str], ...]]] = {}
    for name, view in answers.items():
        for one in view.advertised:
            found.setdefault(one.filter, {})[name] = one.links
    return found


def paths_to(
    one: ReservationView, broker: str, trees: Mapping[str, Mapping[str, Iterable[tuple[str, str]]]]
) -> list[tuple[str, ...]]:
    """From the publishers' brokers, as far as these have answered."""
    found: list[tuple[str, ...]] = []
    for advertised in one.advertised:
        for publisher, links in trees.get(advertised, {}).items():
            found += paths_in(links, publisher, broker, 1)
    return found


def _state(one: ReservationView) -> str:
    told = f": {one.reason}" if one.reason and one.service is None else ""
    colour = "green" if one.state == "held" else "yellow"
    return f"[{colour}]{one.state}[/]{escape(told)}"


def _traffic(tspec: TSpecView) -> str:
    return f"{_rate(tspec.r)}, {tspec.b:.0f} bytes"


def _rate(bytes_per_second: float | None) -> str:
    return "-" if bytes_per_second is None else f"{bytes_per_second * 8 / 1e6:.3g} Mbit/s"


def _share(link: LinkReservationsView) -> str:
    return f"{link.promised / link.rate:.1%}" if link.rate else "-"
