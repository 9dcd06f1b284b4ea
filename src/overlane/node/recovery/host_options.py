"""What a process of a host is told: which host it is, and which replica it runs."""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from msgspec import structs

from overlane.core.units import SECOND
from overlane.errors import ConfigError
from overlane.network.endpoints import endpoints
from overlane.network.reading import read_network
from overlane.network.schema import Broker, Coordination, Network
from overlane.node.coordination.options import Own
from overlane.node.options import Options
from overlane.node.recovery.hosted import Hosted, hosted_broker, with_broker
from overlane.recovery.events import ReplicaSettings
from overlane.recovery.hosts.watching import WatchSettings

MIRRORS = "mirrors"
"""The folder of the mirrors of other brokers in the data directory of a host."""


@dataclass(frozen=True, slots=True)
class HostOptions:
    """`broker`: the options of the broker that the host is configured for, whose name is that of the host."""

    broker: Options
    network: Network
    hosted: Hosted | None = None
    """Which mirror this process is, if it is one."""

    @property
    def host(self) -> str:
        return self.broker.name

    @property
    def name(self) -> str:
        """Of the broker whose replica runs here."""
        return self.host if self.hosted is None else self.hosted.broker

    @property
    def is_home(self) -> bool:
        return self.hosted is None

    @property
    def data(self) -> Path:
        assert self.broker.data is not None
        return self.broker.data if self.hosted is None else self.broker.data / MIRRORS / self.hosted.broker

    @property
    def described(self) -> Broker:
        """The broker that the host is configured for."""
        return next(one for one in self.network.brokers if one.name == self.host)

    @property
    def domain(self) -> str:
        return self.described.domain or self.host

    @property
    def has_broker(self) -> bool:
        """A backup has none of its own."""
        return self.hosted is not None or self.described.role != "backup"

    @property
    def role_and_listeners(self) -> tuple[str, tuple[str, ...]]:
        """Of the broker whose replica runs here."""
        if self.hosted is not None:
            return self.hosted.role, self.hosted.listeners
        return self.described.role, tuple(endpoints(self.network, self.host).listeners)

    @property
    def settings(self) -> ReplicaSettings:
        silence = self.network.recovery.silence_ns
        return ReplicaSettings(
            heartbeat=silence // 2,
            primary_lease=5 * silence // 6,
            mirror_lease=silence,
            sync_max=max(2 * SECOND, 2 * silence),
        )

    @property
    def watch_settings(self) -> WatchSettings:
        silence = self.network.recovery.silence_ns
        return WatchSettings(silence=silence, suspect=2 * silence // 3)

    def configuration(self) -> tuple[Options, Network]:
        """Of the broker that runs in this process, as it is to start now. ConfigError."""
        if self.hosted is None:
            return self.broker, self.network
        network = self.network if self.broker.own is not None else self._fresh_network()
        described = hosted_broker(network, self.host, self.hosted)
        own = self.broker.own
        if own is not None:
            # Everything about the broker is as described here; what holds for the overlay comes from ZooKeeper.
            own = Own(self.hosted.broker, own.zookeeper, directory=own.directory, broker=described)
        broker = replace(self.broker, name=self.hosted.broker, data=self.data, own=own, telemetry=None)
        return broker, with_broker(network, described)

    def _fresh_network(self) -> Network:
        """The file as it is now: this process may have waited for weeks."""
        try:
            fresh: Network = read_network(self.broker.file)
        except ConfigError:
            return self.network
        network: Network = structs.replace(fresh, coordination=self.network.coordination)
        return network

    def command_of_mirror(self, hosted: Hosted) -> list[str]:
        """What runs a mirror of another broker: the command of this process, and one option more."""
        words = [word for word in sys.argv[1:] if word != "--supervised"]
        return [sys.executable, "-m", "overlane", *words, "--supervised", "--hosted", _json(hosted)]

    def begin_anew(self, status: int) -> None:
        """End this process at once, without writing anything more. A mirror is started again by its host, a host starts
        itself again."""
        if self.is_home:
            os.execv(sys.executable, [sys.executable, "-m", "overlane", *sys.argv[1:]])
        os._exit(status)


def host_options(options: Options, network: Network, hosted: str) -> HostOptions:
    """`hosted`: what the process of a mirror was told by its host; empty: this is the host."""
    if not hosted:
        return HostOptions(options, network)
    described = msgspec.json.decode(hosted, type=Hosted)
    assert network.coordination is not None
    # As the host has resolved them: an embedded ensemble is found by the folder of its data.
    coordination: Coordination = structs.replace(network.coordination, zookeeper=described.zookeeper)
    return HostOptions(options, structs.replace(network, coordination=coordination), described)


def _json(hosted: Hosted) -> str:
    return msgspec.json.encode(hosted).decode()
