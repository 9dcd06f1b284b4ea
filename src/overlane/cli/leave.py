"""`overlane leave`: take a broker out of a network that runs, for good."""

from pathlib import Path
from time import monotonic, sleep
from typing import Annotated

import typer

from overlane.cli.asking import Audience, Place, admin_token, ask, tell
from overlane.cli.faults import told
from overlane.cli.join import neighbours
from overlane.errors import Unavailable
from overlane.mqtt.secret import Secret
from overlane.network.endpoints import endpoints
from overlane.network.reading import read_network
from overlane.node.views import HealthView

GONE_WITHIN_S = 20.0


def leave(
    network: Annotated[Path, typer.Argument(help="The network file.", metavar="NETWORK.toml", show_default=False)],
    name: Annotated[str, typer.Option("--name", help="The broker that leaves.")],
    token_file: Annotated[Path | None, typer.Option("--token-file", help="The admin token of the brokers.")] = None,
) -> None:
    """Let a broker say goodbye and end: nothing is kept for it any more. Then take it out of the file."""
    with told():
        described = read_network(network)
        place = Place(name, endpoints(described, name, str(network)).admin)
        token = admin_token(described, token_file)
        if trouble := tell(place, "POST", "/leave", {}, token):
            raise Unavailable(name, trouble)
        _wait_until_gone(place, token)
        for neighbour in neighbours(described, name, network):
            if trouble := tell(neighbour, "DELETE", f"/links/{name}", {}, token):
                typer.echo(f"{neighbour.name} still waits for {name}: {trouble}", err=True)
    typer.echo(f"{name} has left")


def _wait_until_gone(place: Place, token: Secret | None) -> None:
    """It stays a moment, so that the word gets round; Unavailable if it does not end then."""
    until = monotonic() + GONE_WITHIN_S
    while ask(Audience((place,), token), "/health", {}, HealthView)[0].answer is not None:
        if monotonic() > until:
            raise Unavailable(place.name, f"has said goodbye, but still runs after {GONE_WITHIN_S:g} s")
        sleep(0.1)
