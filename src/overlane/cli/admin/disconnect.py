"""`overlane disconnect`: end the connection of a client, and its session if that is wanted."""

from typing import Annotated
from urllib.parse import quote

import typer

from overlane.cli.admin.admin_client import DEFAULT, send_all, targets_of
from overlane.cli.exit_status import exit_on_error, fail
from overlane.cli.output import Target, TokenFile
from overlane.errors import Unavailable

_UNKNOWN = "there is no "


def disconnect(
    client: Annotated[str, typer.Argument(help="Identifier of the client.", show_default=False)],
    target: Target = DEFAULT,
    session: Annotated[
        bool,
        typer.Option("--session", help="Delete its session too: subscriptions, queue, unacknowledged messages."),
    ] = False,
    token_file: TokenFile = None,
) -> None:
    """Disconnect a client, which may reconnect; with --session, delete its session too."""
    with exit_on_error():
        parameters = {"session": "true"} if session else {}
        path = f"/clients/{quote(client, safe='')}"
        answers = send_all(targets_of(target, token_file), "DELETE", path, parameters)
    for broker, error in answers.items():
        if not error:
            typer.echo(f"{broker}: {client} disconnected{', its session deleted' if session else ''}")
        elif not error.startswith(_UNKNOWN):
            typer.echo(f"{broker}: {error}", err=True)
    if all(answers.values()):
        fail(Unavailable(client, f"no broker that answers has {'a session' if session else 'a connection'} of it"))
