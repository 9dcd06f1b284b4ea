"""Where a command finds ZooKeeper: from a network file, or from --zookeeper. The options for that are written once.

A command that has a parameter `where: Where` and is decorated with `@with_zookeeper` takes the options in its place:

    @with_zookeeper
    def brokers(where: Where, file: File = None) -> None: ...
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_type_hints

import typer

from overlane.coordination.access import access_of
from overlane.coordination.zookeeper import Access
from overlane.errors import ConfigError, Fault
from overlane.network.reading import read_network
from overlane.network.schema import EMBEDDED, Coordination
from overlane.network.sections.coordinated import chroot, zookeeper_hosts

File = Annotated[
    Path | None,
    typer.Argument(metavar="NETWORK.toml", help="Network file with the addresses of ZooKeeper.", show_default=False),
]
Zookeeper = Annotated[
    str,
    typer.Option("--zookeeper", metavar="HOSTS", help="Addresses of ZooKeeper, HOST:PORT separated by commas."),
]
RootPath = Annotated[str, typer.Option("--path", help="Root path of the overlay in ZooKeeper.")]
Data = Annotated[Path, typer.Option("--data", help="Data directory of `overlane up`, which has the embedded ensemble.")]
User = Annotated[str, typer.Option("--zookeeper-user", help="User at ZooKeeper (SASL digest).")]
Password = Annotated[Path | None, typer.Option("--zookeeper-password", help="File with the password of that user.")]
Ca = Annotated[Path | None, typer.Option("--zookeeper-ca", help="Certificate authority of ZooKeeper; enables TLS.")]
Certificate = Annotated[Path | None, typer.Option("--zookeeper-certificate", help="Client certificate for ZooKeeper.")]
Key = Annotated[Path | None, typer.Option("--zookeeper-key", help="Key of that certificate.")]


@dataclass(frozen=True, slots=True)
class Where:
    """The options, in the order in which help lists them."""

    zookeeper: Zookeeper = ""
    path: RootPath = "/overlane"
    data: Data = Path("overlane-data")
    user: User = ""
    password: Password = None
    ca: Ca = None
    certificate: Certificate = None
    key: Key = None

    def access(self, file: Path | None) -> Access:
        """ConfigError or Unavailable."""
        if self.zookeeper:
            return access_of(_given(self))
        if file is None:
            raise ConfigError([Fault("overlane", 0, "", "neither", "a network file, or --zookeeper HOSTS")])
        found = read_network(file, needs_brokers=False).coordination
        if found is None:
            allowed = "a table [coordination], or --zookeeper"
            raise ConfigError([Fault(str(file), 0, "coordination", "nothing", allowed)])
        return access_of(found, self.data)


def with_zookeeper(command: Callable[..., None]) -> Callable[..., None]:
    """The same command with the options of `Where` as its last parameters, in place of `where`."""
    hints = get_type_hints(Where, include_extras=True)

    @functools.wraps(command)
    def run(**given: object) -> None:
        options = {name: given.pop(name) for name in hints if name in given}
        command(where=Where(**options), **given)  # type: ignore[arg-type]

    own = get_type_hints(command, include_extras=True)
    parameters = [
        one.replace(annotation=own[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in inspect.signature(command).parameters.items()
        if name != "where"
    ]
    parameters += [
        one.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in inspect.signature(Where).parameters.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _given(where: Where) -> Coordination:
    faults = []
    ca, certificate, key = (str(one) if one is not None else None for one in (where.ca, where.certificate, where.key))
    for option, kind, text in (
        ("--zookeeper", zookeeper_hosts(), where.zookeeper),
        ("--path", chroot(), where.path),
    ):
        try:
            kind.read(text)
        except ValueError:
            faults.append(Fault("overlane", 0, option, f'"{text}"', kind.allowed))
    if where.zookeeper == EMBEDDED:
        faults.append(Fault("overlane", 0, "--zookeeper", f'"{EMBEDDED}"', "addresses HOST:PORT"))
    if bool(where.user) != (where.password is not None):
        faults.append(Fault("overlane", 0, "--zookeeper-user", "one without the other", "--zookeeper-password with it"))
    if (certificate is None) != (key is None) or (certificate is not None and ca is None):
        allowed = "--zookeeper-certificate, --zookeeper-key and --zookeeper-ca together"
        faults.append(Fault("overlane", 0, "--zookeeper-certificate", "one without the others", allowed))
    if faults:
        raise ConfigError(faults)
    return Coordination(
        zookeeper=where.zookeeper,
        path=where.path,
        user=where.user or None,
        password_file=str(where.password) if where.password is not None else None,
        ca=ca,
        certificate=certificate,
        key=key,
    )
