"""Where a command finds ZooKeeper: from a network file, or from --zookeeper."""

from pathlib import Path
from typing import Annotated

import typer

from overlane.coordination.access import access_of
from overlane.coordination.zookeeper import Access
from overlane.errors import ConfigError, Fault
from overlane.network.coordinated import chroot, zookeeper_hosts
from overlane.network.reading import read_network
from overlane.network.schema import EMBEDDED, Coordination

ROOT = "/overlane"
DATA = Path("overlane-data")

File = Annotated[
    Path | None,
    typer.Argument(metavar="[NETWORK.toml]", help="Network file with a table [coordination].", show_default=False),
]
Zookeeper = Annotated[
    str,
    typer.Option("--zookeeper", metavar="HOSTS", help="Addresses of ZooKeeper, HOST:PORT separated by commas."),
]
RootPath = Annotated[str, typer.Option("--path", help="Path in ZooKeeper below which the overlay is.")]
Data = Annotated[Path, typer.Option("--data", help="Data directory of `overlane up`, which has the embedded ensemble.")]
User = Annotated[str, typer.Option("--zookeeper-user", help="User at ZooKeeper (SASL digest).")]
Password = Annotated[Path | None, typer.Option("--zookeeper-password", help="File with the password of that user.")]
Ca = Annotated[Path | None, typer.Option("--zookeeper-ca", help="Certificate authority of ZooKeeper: use TLS.")]

Certificate = Annotated[Path | None, typer.Option("--zookeeper-certificate", help="Certificate to show to ZooKeeper.")]
Key = Annotated[Path | None, typer.Option("--zookeeper-key", help="Key of that certificate.")]


def where_is(
    file: Path | None,
    zookeeper: str,
    path: str,
    data: Path = DATA,
    user: str = "",
    password: Path | None = None,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Access:
    """ConfigError or Unavailable."""
    if zookeeper:
        return access_of(_given(zookeeper, path, user, password, (ca, certificate, key)))
    if file is None:
        raise ConfigError([Fault("overlane", 0, "", "neither", "a network file, or --zookeeper HOSTS")])
    found = read_network(file).coordination
    if found is None:
        raise ConfigError([Fault(str(file), 0, "coordination", "nothing", "a table [coordination], or --zookeeper")])
    return access_of(found, data)


def _given(
    zookeeper: str, path: str, user: str, password: Path | None, tls: tuple[Path | None, Path | None, Path | None]
) -> Coordination:
    faults = []
    ca, certificate, key = (str(one) if one is not None else None for one in tls)
    for option, kind, text in (("--zookeeper", zookeeper_hosts(), zookeeper), ("--path", chroot(), path)):
        try:
            kind.read(text)
        except ValueError:
            faults.append(Fault("overlane", 0, option, f'"{text}"', kind.allowed))
    if zookeeper == EMBEDDED:
        faults.append(Fault("overlane", 0, "--zookeeper", f'"{EMBEDDED}"', "addresses HOST:PORT"))
    if bool(user) != (password is not None):
        faults.append(Fault("overlane", 0, "--zookeeper-user", "one without the other", "--zookeeper-password with it"))
    if (certificate is None) != (key is None) or (certificate is not None and ca is None):
        allowed = "--zookeeper-certificate, --zookeeper-key and --zookeeper-ca together"
        faults.append(Fault("overlane", 0, "--zookeeper-certificate", "one without the others", allowed))
    if faults:
        raise ConfigError(faults)
    return Coordination(
        zookeeper=zookeeper,
        path=path,
        user=user or None,
        password_file=str(password) if password is not None else None,
        ca=ca,
        certificate=certificate,
        key=key,
    )
