"""How ZooKeeper is reached, from what the file or a command says."""

from pathlib import Path

from overlane.coordination.ensemble.layout import open_ensemble
from overlane.coordination.zookeeper import Access, Tls
from overlane.errors import ConfigError, Fault
from overlane.network.schema import EMBEDDED, Coordination
from overlane.secret_file import read_token

ENSEMBLE = "zookeeper"
"""The folder of an embedded ensemble in the data directory of `overlane up`."""


def access_of(coordination: Coordination, data: Path | None = None) -> Access:
    """ConfigError or Unavailable. `data`: where `overlane up` keeps its data, if ZooKeeper is embedded."""
    user, password = coordination.user, None
    if user is not None and coordination.password_file is not None:
        password = read_token(coordination.password_file).reveal().decode()
    tls = None
    if coordination.ca is not None:
        tls = Tls(coordination.ca, coordination.certificate, coordination.key)
    return Access(_hosts(coordination, data), coordination.path, user, password, tls)


def _hosts(coordination: Coordination, data: Path | None) -> str:
    if coordination.zookeeper != EMBEDDED:
        return coordination.zookeeper
    folder = data / ENSEMBLE if data is not None else None
    if folder is None or not (folder / "ensemble.json").is_file():
        found = f'"{EMBEDDED}", but no ensemble in {folder}' if folder is not None else f'"{EMBEDDED}"'
        allowed = "addresses of ZooKeeper, or --data of the `overlane up` that runs it"
        raise ConfigError([Fault("coordination", 0, "zookeeper", found, allowed)])
    return open_ensemble(folder, coordination.servers).addresses
