"""`overlane check`: everything that a start needs, checked without starting anything.

Exit status: 0 the brokers would start (there may be warnings and notes), 1 something is not available here and now, 2
the file or something that it names is invalid.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from overlane.cli.exit_status import INVALID_INPUT, UNAVAILABLE, exit_on_error
from overlane.errors import ConfigError

if TYPE_CHECKING:
    from overlane.node import checking

DATA = Path("overlane-data")


def check(
    file: Annotated[Path, typer.Argument(help="Network file.", metavar="NETWORK.toml", show_default=False)],
    name: Annotated[
        str, typer.Option("--name", help="Check this broker only, on the machine that runs it (default: all).")
    ] = "",
    data: Annotated[
        Path | None, typer.Option("--data", help="Data directory, with --name (default: overlane-data/NAME).")
    ] = None,
    running: Annotated[
        bool, typer.Option("--running", help="The brokers run: their addresses and data directories are in use.")
    ] = False,
    reach: Annotated[bool, typer.Option("--reach", help="Also connect to the neighbours of each broker.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check a network file and all requirements of its brokers: files, certificates, users, ports, disk."""
    # Imported here so that other commands start faster.
    from overlane.network.endpoints import endpoints, endpoints_on_one_machine
    from overlane.network.reading import read_network
    from overlane.node.checking import Finding, Level, check_broker

    with exit_on_error():
        network = read_network(file)
        if name:
            endpoints(network, name, str(file))
    names = [name] if name else [broker.name for broker in network.brokers]
    found = {
        one: check_broker(
            network, one, str(file), data if name and data else DATA / one, is_running=running, reaches=reach
        )
        for one in names
    }
    if not name:
        try:
            endpoints_on_one_machine(network, str(file))
        except ConfigError as error:
            told = Finding(Level.WARNING, f"not all of them can run on one machine (overlane up): {error}")
            found = {one: [told, *of] for one, of in found.items()}
    if as_json:
        brokers = {one: [{"level": each.level, "told": each.told} for each in of] for one, of in found.items()}
        typer.echo(msgspec.json.encode({"file": str(file), "brokers": brokers}))
    else:
        typer.echo("\n".join(_lines(file, found)))
    levels = {each.level for of in found.values() for each in of}
    if Level.INVALID in levels:
        raise typer.Exit(INVALID_INPUT)
    if Level.UNAVAILABLE in levels:
        raise typer.Exit(UNAVAILABLE)


def _lines(file: Path, found: "Mapping[str, Sequence[checking.Finding]]") -> list[str]:
    """What is wrong with all brokers alike is said once."""
    first = next(iter(found.values())) if len(found) > 1 else ()
    shared = [each for each in first if all(each in of for of in found.values())]
    lines = [f"{file}: {each.level}: {each.told}" for each in shared]
    for name, findings in found.items():
        own = [each for each in findings if each not in shared]
        lines += [f"{name}: {each.level}: {each.told}" for each in own]
        if all(each.level == "note" for each in own):
            lines.append(f"{name}: ok")
    return lines
