"""`overlane leave`: remove a broker from a running network for good."""

from pathlib import Path
from time import monotonic, sleep
from typing import Annotated

import typer

from overlane.adminapi.views import HealthView
from overlane.cli.admin.admin_client import AdminAddress, Targets, admin_token, get_all, send
from overlane.cli.brokers.join import neighbours
from overlane.cli.exit_status import exit_on_error
from overlane.errors import Unavailable
from overlane.network.endpoints import endpoints
from overlane.network.reading import read_network
from overlane.secret import Secret

SHUTDOWN_S_MAX = 20.0


def leave(
    network: Annotated[Path, typer.Argument(help="Network file.", metavar="NETWORK.toml", show_default=False)],
    name: Annotated[str, typer.Option("--name", help="Broker to remove.")],
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the admin token (default: that of the network file).")
    ] = None,
) -> None:
    """Remove a broker from a running network: the other brokers keep no messages for it, and it shuts down.

    Afterwards, delete the broker from the network file.
    """
    with exit_on_error():
        described = read_network(network)
        broker = AdminAddress(name, endpoints(described, name, str(network)).admin)
        token = admin_token(described, token_file)
        if error := send(broker, "POST", "/leave", {}, token):
            raise Unavailable(name, error)
        _wait_for_shutdown(broker, token)
        for neighbour in neighbours(described, name, network):
            if error := send(neighbour, "DELETE", f"/links/{name}", {}, token):
                typer.echo(f"{neighbour.name} still has its link to {name}: {error}", err=True)
    typer.echo(f"{name} has left")


def _wait_for_shutdown(broker: AdminAddress, token: Secret | None) -> None:
    """The broker runs on until its departure has spread; Unavailable if it does not shut down then."""
    until = monotonic() + SHUTDOWN_S_MAX
    while get_all(Targets((broker,), token), "/health", {}, HealthView)[0].body is not None:
        if monotonic() > until:
            raise Unavailable(broker.name, f"has left, but still runs after {SHUTDOWN_S_MAX:g} s")
        sleep(0.1)
