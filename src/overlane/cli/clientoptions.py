"""What `overlane pub` and `overlane sub` have in common: how to reach a broker, and how to say what went wrong.

Exit status: 0 done, 1 the broker cannot be reached or refuses, 2 the request makes no sense.
"""

import logging
import signal
from asyncio import Event, get_running_loop
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from overlane.client import Client, ClientError, InvalidRequest, Reliability, Tls, connect

TROUBLE = 1
BAD_REQUEST = 2
PASSWORD_BYTES_MAX = 65_535

Address = Annotated[
    str,
    typer.Argument(metavar="ADDRESS", help="host, host:port or mqtts://host; several with commas.", show_default=False),
]
Level = Annotated[int | None, typer.Option("--qos", min=0, max=2, help="0 at most, 1 at least, 2 exactly once.")]
Deadline = Annotated[str | None, typer.Option(metavar="DURATION", help="Within which messages shall arrive, as 60ms.")]
Sureness = Annotated[Reliability | None, typer.Option(help="Whether the overlay may lose messages.")]
ClientId = Annotated[str | None, typer.Option(help="The name to be known by; drawn by chance if not given.")]
User = Annotated[str | None, typer.Option(help="The user's name.")]
PasswordFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Holds the password, in its first line.", show_default=False)
]
TlsCa = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Authorities to trust, in PEM; turns TLS on.", show_default=False)
]
TlsCertificate = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The client's own certificate, in PEM.", show_default=False)
]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, in PEM.", show_default=False)]
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
def told() -> Iterator[None]:
    """Trouble becomes one sentence on standard error, and a status."""
    log = logging.getLogger("overlane.client")
    voice = logging.StreamHandler()
    voice.setFormatter(logging.Formatter("overlane: %(message)s"))
    log.addHandler(voice)
    try:
        yield
    except InvalidRequest as wrong:
        refuse(str(wrong))
    except ClientError as trouble:
        refuse(str(trouble), TROUBLE)
    finally:
        log.removeHandler(voice)


def refuse(reason: str, status: int = BAD_REQUEST) -> NoReturn:
    typer.echo(f"overlane: {reason}", err=True)
    raise typer.Exit(status)


def interrupted() -> Event:
    """Set by Ctrl-C or SIGTERM: time for the summary."""
    event = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        get_running_loop().add_signal_handler(number, event.set)
    return event


def _password(file: Path) -> bytes:
    try:
        with file.open("rb") as lines:
            return lines.readline(PASSWORD_BYTES_MAX).rstrip(b"\r\n")
    except OSError as error:
        raise InvalidRequest(f"{file}: the password cannot be read: {error.strerror}") from None
