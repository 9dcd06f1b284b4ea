"""Options that `overlane pub` and `overlane sub` share, and their errors.

Exit status: 0 done or interrupted, 1 the broker cannot be reached or rejects the request, 2 invalid options.
"""

import logging
import signal
from asyncio import Event, get_running_loop
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from overlane.cli.exit_status import INVALID_INPUT, UNAVAILABLE, fail
from overlane.client import Client, ClientError, InvalidRequest, Reliability, Tls, connect

PASSWORD_BYTES_MAX = 65_535

Address = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS", help="host, host:port or mqtts://host; several separated by commas.", show_default=False
    ),
]
QosLevel = Annotated[
    int | None,
    typer.Option("--qos", min=0, max=2, help="MQTT QoS: 0 at most once, 1 at least once, 2 exactly once."),
]
Deadline = Annotated[str | None, typer.Option(metavar="DURATION", help="Delivery deadline, such as 60ms.")]
ReliabilityClass = Annotated[Reliability | None, typer.Option(help="Whether the overlay may lose messages.")]
ClientId = Annotated[str | None, typer.Option(help="MQTT client identifier (default: random).")]
User = Annotated[str | None, typer.Option(help="User name.")]
PasswordFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File with the password in its first line.", show_default=False)
]
TlsCa = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Trusted certificate authorities, PEM; enables TLS.", show_default=False),
]
TlsCertificate = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Client certificate, PEM.", show_default=False)
]
TlsKey = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Private key of the client certificate, PEM.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]


def client_at(
    address: str,
    client_id: str | None,
    user: str | None,
    password_file: Path | None,
    tls_ca: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
) -> Client:
    tls = None
    if tls_ca is not None or tls_certificate is not None or tls_key is not None:
        tls = Tls(ca=tls_ca, certificate=tls_certificate, key=tls_key)
    return connect(
        *(part.strip() for part in address.split(",") if part.strip()),
        client_id=client_id,
        user=user,
        password=None if password_file is None else _password(password_file),
        tls=tls,
    )


@contextmanager
def exit_on_client_error() -> Iterator[None]:
    """Errors and log messages of the client go to standard error; errors end the command."""
    log = logging.getLogger("overlane.client")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("overlane: %(message)s"))
    log.addHandler(handler)
    try:
        yield
    except ClientError as error:
        fail(error, INVALID_INPUT if isinstance(error, InvalidRequest) else UNAVAILABLE)
    finally:
        log.removeHandler(handler)


def interrupted() -> Event:
    """An event that Ctrl-C or SIGTERM sets."""
    event = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        get_running_loop().add_signal_handler(number, event.set)
    return event


def _password(file: Path) -> bytes:
    try:
        with file.open("rb") as lines:
            return lines.readline(PASSWORD_BYTES_MAX).rstrip(b"\r\n")
    except OSError as error:
        raise InvalidRequest(f"{file}: cannot read the password: {error.strerror}") from None
