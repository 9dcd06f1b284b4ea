"""What a broker is told of its coordination."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from overlane.errors import ConfigError, Fault
from overlane.membership.endpoint import Endpoint
from overlane.membership.membership import Role
from overlane.network.schema import EMBEDDED, ROLES, Broker, Coordination, Network
from overlane.network.sections.coordinated import chroot, zookeeper_hosts
from overlane.network.syntax import kinds
from overlane.network.syntax.kinds import FieldKind

SOURCE = "configuration in ZooKeeper"
"""What messages call it, in place of a file."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Own:
    """What a broker that follows the configuration in ZooKeeper is told by its command. None: as that says."""

    name: str
    zookeeper: Coordination
    role: Role | None = None
    domain: str | None = None
    listeners: dict[str, Endpoint] | None = None
    overlay: Endpoint | None = None
    admin: Endpoint | None = None
    directory: Path | None = None
    """What relative paths in the configuration are relative to."""
    broker: Broker | None = None
    """As a file describes it, in place of the configuration in ZooKeeper."""


def own_of_file(network: Network, name: str, directory: Path) -> Own | None:
    """Of a file that says where ZooKeeper is and describes brokers, and nothing else: what holds for the whole overlay
    comes from ZooKeeper then. None: the file has settings of its own, and they hold."""
    shared: Network = structs.replace(network, brokers=(), coordination=None)
    if network.coordination is None or shared != Network():
        return None
    described = {broker.name: broker for broker in network.brokers}
    return Own(name, network.coordination, directory=directory, broker=described.get(name))


def own_of(
    name: str,
    zookeeper: Coordination,
    role: str | None,
    domain: str,
    addresses: Mapping[str, str],
    directory: Path | None,
) -> Own:
    """From the words of a command; ConfigError. `addresses` by option, empty where it was not given."""
    faults: list[Fault] = []

    def check(option: str, kind: FieldKind[T], text: str) -> T:
        try:
            return kind.read(text)
        except ValueError:
            faults.append(Fault("overlane broker", 0, f"--{option}", f'"{text}"', kind.allowed))
            return kind.blank

    check("name", kinds.name(), name)
    check("zookeeper", zookeeper_hosts(), zookeeper.zookeeper)
    if zookeeper.zookeeper == EMBEDDED:
        faults.append(Fault("overlane broker", 0, "--zookeeper", f'"{EMBEDDED}"', "addresses HOST:PORT"))
    check("path", chroot(), zookeeper.path)
    if domain:
        check("domain", kinds.name(), domain)
    if (zookeeper.user is None) != (zookeeper.password_file is None):
        faults.append(
            Fault("overlane broker", 0, "--zookeeper-user", "one without the other", "--zookeeper-password with it")
        )
    given = {option: check(option, kinds.endpoint(), text) for option, text in addresses.items() if text}
    if faults:
        raise ConfigError(faults)
    mqtt = given.pop("mqtt", None)
    return Own(
        name,
        zookeeper,
        next((one for one in ROLES if one == role), None),
        domain or None,
        {} if mqtt is None else {"mqtt": mqtt},
        given.get("overlay"),
        given.get("admin"),
        directory if directory is not None else Path.cwd(),
    )
