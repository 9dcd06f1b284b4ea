"""`overlane brokers` and `overlane assignments`: what ZooKeeper says of an overlay, as a table or JSON."""

import asyncio
import time
from collections.abc import Callable

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape

from overlane.cli.coordination.where import File, Where, with_zookeeper
from overlane.cli.exit_status import exit_on_error
from overlane.cli.output import AsJson, Watch
from overlane.cli.tables import OutputConsole, Wide, span, table
from overlane.coordination.client import coordination_client
from overlane.coordination.reading import Overview, read_overview
from overlane.coordination.records import unpack
from overlane.coordination.zookeeper import Access

EVERY_S = 1.0


@with_zookeeper
def brokers(
    where: Where,
    file: File = None,
    as_json: AsJson = False,
    watch: Watch = False,
    wide: Wide = False,
) -> None:
    """Show the brokers that are registered in ZooKeeper: role, domain, addresses, load, and the leader."""
    with exit_on_error():
        _show(
            where.access(file),
            as_json,
            watch,
            wide,
            _broker_rows,
            _brokers,
        )


@with_zookeeper
def assignments(
    where: Where,
    file: File = None,
    as_json: AsJson = False,
    watch: Watch = False,
    wide: Wide = False,
) -> None:
    """Show the routing broker of each bundle of topics, with the time and the reason, and the edges that use it."""
    with exit_on_error():
        _show(
            where.access(file),
            as_json,
            watch,
            wide,
            _bundle_rows,
            _assignments,
        )


Rows = Callable[[Overview], list[dict[str, object]]]
Render = Callable[[Overview], RenderableType]


def _show(access: Access, as_json: bool, watch: bool, wide: bool, rows: Rows, render: Render) -> None:
    try:
        asyncio.run(_poll(access, as_json, watch, wide, rows, render))
    except KeyboardInterrupt:
        return


async def _poll(access: Access, as_json: bool, watch: bool, wide: bool, rows: Rows, render: Render) -> None:
    console = OutputConsole(wide, is_redrawn=watch)
    async with coordination_client(access) as session:
        if not watch:
            _print(console, await read_overview(session), as_json, rows, render)
            return
        with Live(console=console, auto_refresh=False) as live:
            while True:
                found = await read_overview(session)
                if console.is_terminal and not as_json:
                    live.update(render(found), refresh=True)
                else:
                    _print(console, found, as_json, rows, render)
                await asyncio.sleep(EVERY_S)


def _print(console: Console, found: Overview, as_json: bool, rows: Rows, render: Render) -> None:
    if as_json:
        typer.echo(msgspec.json.encode({"items": rows(found), "ignored": found.ignored}))
    else:
        console.print(render(found))


def _broker_rows(found: Overview) -> list[dict[str, object]]:
    carried: dict[str, int] = {}
    for one in found.assigned.values():
        carried[one.broker] = carried.get(one.broker, 0) + 1
    rows: list[dict[str, object]] = []
    for name, broker in sorted(found.brokers.items(), key=lambda item: (item[1].role, item[1].domain, item[0])):
        report = found.reports.get(name)
        rows.append(
            {
                "name": name,
                "role": broker.role,
                "domain": broker.domain,
                "overlay": list(broker.overlay),
                "clients": broker.clients,
                "admin": broker.admin,
                "load": report.load if report is not None else None,
                "bundles": carried.get(name, 0),
                "uses": len(unpack(report.wants) | unpack(report.offers)) if report is not None else 0,
                "leads": name == found.leader,
                "leaving": report.is_leaving if report is not None else False,
                "version": broker.version,
            }
        )
    return rows


def _bundle_rows(found: Overview) -> list[dict[str, object]]:
    used = {name: unpack(report.wants) | unpack(report.offers) for name, report in found.reports.items()}
    return [
        {
            "bundle": bundle,
            "broker": one.broker,
            "standby": one.standby or None,
            "why": one.why,
            "since_s": one.since_s,
            "edges": sorted(name for name, bundles in used.items() if bundle in bundles and name in found.brokers),
        }
        for bundle, one in sorted(found.assigned.items())
    ]


def _brokers(found: Overview) -> RenderableType:
    shown = table(
        *("broker", "role", "domain", "overlay", "mqtt", "load", "bundles", ""),
        numbers=("load", "bundles"),
        dropped_first=("overlay", "mqtt", "load", "domain"),
        wrapped=("overlay",),
    )
    for broker in sorted(found.brokers, key=lambda name: (found.brokers[name].role, found.brokers[name].domain, name)):
        record, report = found.brokers[broker], found.reports.get(broker)
        carried = sum(one.broker == broker for one in found.assigned.values())
        uses = len(unpack(report.wants) | unpack(report.offers)) if report is not None else 0
        marks = ["leader"] if broker == found.leader else []
        marks += ["leaving"] if report is not None and report.is_leaving else []
        shown.add_row(
            escape(broker),
            record.role,
            escape(record.domain),
            escape(", ".join(record.overlay)),
            escape(record.clients.get("mqtt", "-")),
            f"{report.load:.0%}" if report is not None else "-",
            str(carried if record.role == "routing" else uses),
            " ".join(marks),
        )
    return Group(shown, *_notes(found))


def _assignments(found: Overview) -> RenderableType:
    shown = table(
        *("bundle", "routing broker", "standby", "since", "why", "edges"),
        numbers=("bundle", "since"),
        dropped_first=("since", "standby"),
        wrapped=("why", "edges"),
    )
    now_s = time.time()
    for row in _bundle_rows(found):
        edges = row["edges"]
        assert isinstance(edges, list)
        if not edges:
            continue
        one = found.assigned[int(str(row["bundle"]))]
        since = span(max(0.0, now_s - one.since_s))
        names = escape(one.broker), escape(one.standby or "-")
        shown.add_row(str(row["bundle"]), *names, since, escape(one.why), escape(", ".join(edges)))
    unused = sum(not row["edges"] for row in _bundle_rows(found))
    return Group(shown, f"{unused} bundles are assigned and not used", *_notes(found))


def _notes(found: Overview) -> list[str]:
    notes = [f"[red]ignored:[/] {escape(one)}" for one in found.ignored]
    if found.wanted is not None:
        routing = sum(one.role == "routing" for one in found.brokers.values())
        notes.append(f"{found.wanted.routing} routing brokers are wanted, {routing} are there: {found.wanted.why}")
    return notes
