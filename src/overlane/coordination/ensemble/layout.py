"""The folder of an ensemble: where its servers listen, and how they are configured.

DIR/ensemble.json      the addresses, chosen when the ensemble is made and the same ever after
DIR/lock               held by whoever runs it
DIR/1, DIR/2, ...      a server: zoo.cfg, myid, its data, server.log
"""

from pathlib import Path

import msgspec

from overlane.errors import ConfigError, Fault, Unavailable
from overlane.local_ports import HOST, free_ports

SERVERS_MAX = 9

TICK_MS = 200
"""Short, so that a lost leader is replaced in less than a second."""
SYNC_TICKS, INIT_TICKS = 10, 50
SESSION_MS_MIN, SESSION_MS_MAX = 400, 40_000
CONNECTIONS_PER_HOST_MAX = 0
"""0: any number; all brokers of a machine have one address."""


class ZooKeeperServer(msgspec.Struct, frozen=True):
    client: int
    peer: int
    election: int
    """Three ports: for clients, for the followers of a leader, and for elections."""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.client}"


class Ensemble(msgspec.Struct, frozen=True):
    servers: tuple[ZooKeeperServer, ...]

    @property
    def addresses(self) -> str:
        return ",".join(server.address for server in self.servers)


def open_ensemble(folder: Path, count: int) -> Ensemble:
    """The ensemble of this folder; a new one with `count` servers where there is none. ConfigError, Unavailable."""
    path = folder / "ensemble.json"
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Ensemble)
    except FileNotFoundError:
        found = _new_ensemble(count)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
        except OSError as error:
            raise Unavailable(str(folder), error.strerror or str(error)) from None
        return found
    except OSError as error:
        raise Unavailable(str(path), error.strerror or str(error)) from None
    except msgspec.DecodeError as error:
        raise ConfigError([Fault(str(path), 0, "", str(error), "what `overlane zookeeper` wrote")]) from None
    if len(found.servers) != count:
        told = f"an ensemble of {len(found.servers)} servers"
        raise ConfigError([Fault(str(folder), 0, "--servers", str(count), f"{len(found.servers)}: here is {told}")])
    return found


def _new_ensemble(count: int) -> Ensemble:
    ports = free_ports(3 * count)
    return Ensemble(tuple(ZooKeeperServer(*ports[3 * index : 3 * index + 3]) for index in range(count)))


def write_server(folder: Path, ensemble: Ensemble, number: int) -> Path:
    """Write the configuration of a server, from 1 on; its path. Unavailable."""
    home = folder / str(number)
    try:
        home.mkdir(parents=True, exist_ok=True)
        (home / "myid").write_text(f"{number}\n")
        (home / "log4j2.properties").write_text(LOGGING)
        config = home / "zoo.cfg"
        config.write_text(configuration(home, ensemble, number))
    except OSError as error:
        raise Unavailable(str(home), error.strerror or str(error)) from None
    return config


def configuration(home: Path, ensemble: Ensemble, number: int) -> str:
    """The text of zoo.cfg."""
    lines = [
        f"tickTime={TICK_MS}",
        f"initLimit={INIT_TICKS}",
        f"syncLimit={SYNC_TICKS}",
        f"minSessionTimeout={SESSION_MS_MIN}",
        f"maxSessionTimeout={SESSION_MS_MAX}",
        f"maxClientCnxns={CONNECTIONS_PER_HOST_MAX}",
        f"dataDir={home}",
        f"clientPortAddress={HOST}",
        f"clientPort={ensemble.servers[number - 1].client}",
        "admin.enableServer=false",  # it needs Jetty, which PySpark does not ship in the version it takes
        "4lw.commands.whitelist=ruok,srvr,mntr",
        "autopurge.snapRetainCount=3",
        "autopurge.purgeInterval=1",
    ]
    if len(ensemble.servers) > 1:
        lines += [f"server.{one}={HOST}:{at.peer}:{at.election}" for one, at in enumerate(ensemble.servers, 1)]
    return "\n".join(lines) + "\n"


LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""
