"""`overlane join`: add a broker to a running network."""

from pathlib import Path
from typing import Annotated

import typer

from overlane.cli.admin.admin_client import AdminAddress, admin_token, send
from overlane.cli.brokers.broker import broker
from overlane.cli.exit_status import exit_on_error
from overlane.errors import Unavailable
from overlane.network.endpoints import endpoints
from overlane.network.reading import read_network
from overlane.network.schema import Network


def join(
    network: Annotated[
        Path,
        typer.Argument(help="Network file that contains the new broker.", metavar="NETWORK.toml", show_default=False),
    ],
    name: Annotated[str, typer.Option("--name", help="Name of the new broker.")],
    data: Annotated[Path | None, typer.Option("--data", help="Data directory (default: overlane-data/NAME).")] = None,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="Emulate the latency of links as the file gives it.")
    ] = False,
    chaos: Annotated[bool, typer.Option("--chaos", help="Allow the admin API to slow, cut and heal links.")] = False,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the admin token (default: that of the network file).")
    ] = None,
) -> None:
    """Announce a new broker to its neighbours, and run it."""
    with exit_on_error():
        described = read_network(network)
        own = endpoints(described, name, str(network)).overlay
        reach = next(one.reach for one in described.brokers if one.name == name)
        addresses = ",".join(map(str, (own,) if reach is None else reach))
        token = admin_token(described, token_file)
        errors = []
        for neighbour in neighbours(described, name, network):
            error = send(neighbour, "PUT", f"/links/{name}", {"address": addresses}, token)
            errors.append(error)
            if error:
                typer.echo(f"{neighbour.name} could not be informed of {name}: {error}", err=True)
        if errors and all(errors):
            raise Unavailable(name, "no neighbour could be informed of it")
    broker(network, name, data=data, emulate=emulate, chaos=chaos)


def neighbours(network: Network, name: str, file: Path) -> list[AdminAddress]:
    """The admin APIs of a broker's neighbours."""
    others = [end for link in network.links if name in link.ends for end in link.ends if end != name]
    return [AdminAddress(other, endpoints(network, other, str(file)).admin) for other in others]
