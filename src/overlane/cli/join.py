"""`overlane join`: bring a broker into a network that runs."""

from pathlib import Path
from typing import Annotated

import typer

from overlane.cli.asking import Place, admin_token, tell
from overlane.cli.broker import broker
from overlane.cli.faults import told
from overlane.errors import Unavailable
from overlane.network.endpoints import endpoints
from overlane.network.reading import read_network
from overlane.network.schema import Network


def join(
    network: Annotated[
        Path,
        typer.Argument(help="The network file, with the new broker in it.", metavar="NETWORK.toml", show_default=False),
    ],
    name: Annotated[str, typer.Option("--name", help="The new broker.")],
    data: Annotated[
        Path | None, typer.Option("--data", help="Where its records are kept. Default: overlane-data/NAME.")
    ] = None,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="Let links take as long as the file says, on one machine too.")
    ] = False,
    chaos: Annotated[bool, typer.Option("--chaos", help="Let the admin API slow, cut and heal links.")] = False,
    token_file: Annotated[Path | None, typer.Option("--token-file", help="The admin token of its neighbours.")] = None,
) -> None:
    """Tell a new broker's neighbours of it, and run it."""
    with told():
        described = read_network(network)
        own = endpoints(described, name, str(network)).overlay
        reach = next(one.reach for one in described.brokers if one.name == name)
        addresses = ",".join(map(str, (own,) if reach is None else reach))
        token = admin_token(described, token_file)
        troubles = []
        for neighbour in neighbours(described, name, network):
            trouble = tell(neighbour, "PUT", f"/links/{name}", {"address": addresses}, token)
            troubles.append(trouble)
            if trouble:
                typer.echo(f"{neighbour.name} does not know of {name}: {trouble}", err=True)
        if troubles and all(troubles):
            raise Unavailable(name, "none of its neighbours answers")
    broker(network, name, data, emulate=emulate, chaos=chaos)


def neighbours(network: Network, name: str, file: Path) -> list[Place]:
    """Where the admin APIs of a broker's neighbours are."""
    others = [end for link in network.links if name in link.ends for end in link.ends if end != name]
    return [Place(other, endpoints(network, other, str(file)).admin) for other in others]
