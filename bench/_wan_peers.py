"""The systems of bench/wan.py: how a broker of each is run at a site, connected with those of the other sites.

Each is configured as its documentation recommends for such a network: with alternative links if it supports them,
otherwise with a fallback, and with the shortest timeout for silent neighbours that causes no false alarms.
Configuration beyond the connections has a comment with its reason. Connections between sites are not encrypted in any
of them.
"""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from _peers import Mosquitto, NatsServer, Overlane, Peer, ZenohRouter
from _wan_scenarios import Path as SitePath
from _wan_scenarios import Scenario

CLIENTS, LINKS, ADMIN = 1883, 7001, 8001
"""Ports, the same at all sites: each has addresses of its own."""
STREAM, BULK = "alarms/1", "bulk/1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the brokers of one run are."""

    scenario: Scenario
    all_addresses: Mapping[str, Sequence[str]]
    """Of each site one for each uplink."""
    directory: Path

    @property
    def addresses(self) -> dict[str, str]:
        """The first of each site, which is the one in use as long as it works."""
        return {site: found[0] for site, found in self.all_addresses.items()}

    def to_listen(self, site: str) -> str:
        """All of a site's addresses, where it has several."""
        return self.addresses[site] if len(self.all_addresses[site]) == 1 else "0.0.0.0"

    def dials(self, site: str, other: str) -> bool:
        """Of two that have a link, the one with more uplinks: it leaves through whichever works."""
        sites = self.scenario.sites
        here, there = len(self.all_addresses[site]), len(self.all_addresses[other])
        return here > there or (here == there and sites.index(site) < sites.index(other))

    def of(self, site: str) -> Path:
        return self.directory / site

    def neighbours(self, site: str) -> list[str]:
        return [a if b == site else b for a, b in self.scenario.layout.links if site in (a, b)]

    def latency_ms(self, a: str, b: str) -> float:
        return self._path(a, b).latency_ms

    def rate_bps(self, a: str, b: str) -> int | None:
        return self._path(a, b).rate_bps

    def _path(self, a: str, b: str) -> SitePath:
        paths = self.scenario.paths
        return paths.get((a, b)) or paths[b, a]

    def is_on_the_way(self, site: str) -> bool:
        """Whether what is published at the source may have to be there."""
        tree, destination = self.scenario.layout.tree, self.scenario.destination
        return site == destination or site in tree[destination]

    def upstream(self, site: str) -> list[str]:
        """Of the tree: what it connects to, one at a time."""
        return list(self.scenario.layout.tree[site])


@dataclass(frozen=True, slots=True)
class Command:
    words: list[str]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class System(ABC):
    """`key` chooses it on the command line; `wire` is how `_wan_load` talks to it."""

    key: str
    name: str
    wire: str
    peer: ClassVar[Peer | None] = None
    """Whose program it runs."""

    @property
    def bulk_wire(self) -> str:
        """How bulk is sent: not assured, where that can be chosen; empty if there is no way."""
        return "mqtt-0" if self.wire.startswith("mqtt") else self.wire

    def missing(self) -> str | None:
        return None if self.peer is None else self.peer.missing()

    def version(self) -> str:
        return "" if self.peer is None else self.peer.version()

    def cannot(self, scenario: Scenario) -> str | None:  # noqa: ARG002 - for those that need more than a path
        """Why it cannot be set up in this network; nothing if it can."""
        return None

    @abstractmethod
    def broker(self, place: Place, site: str) -> Command | None:
        """How it is run at a site; nothing where there is none."""


@dataclass(frozen=True, slots=True)
class OverlaneOverlay(System):
    peer = Overlane()
    transport: str = "datagram"
    """Of all links."""
    knows_rates: bool = False
    """Whether the network file tells the rates of links, where they have one."""

    def broker(self, place: Place, site: str) -> Command:
        secret = place.directory / "secret"
        secret.write_text("bench-wan-bench-wan-bench-wan-bench-wan")
        secret.chmod(0o600)
        file = place.of(site) / "network.toml"
        file.write_text(self.network(place))
        words = [sys.executable, "-m", "overlane", "broker", str(file), "--name", site]
        return Command([*words, "--data", str(place.of(site) / "data")], {})

    def network(self, place: Place) -> str:
        lines = []
        for site in place.scenario.sites:
            lines += [f"[brokers.{site}]", f'mqtt = "127.0.0.1:{CLIENTS}"', f'admin = "127.0.0.1:{ADMIN}"']
            lines += [f'overlay = "{place.to_listen(site)}:{LINKS}"']
            reach = ", ".join(f'"{address}:{LINKS}"' for address in place.all_addresses[site])
            lines += [f"reach = [{reach}]"]
        for a, b in place.scenario.layout.links:
            lines += ["[[links]]", f'ends = ["{a}", "{b}"]', f'latency = "{place.latency_ms(a, b):g}ms"']
            lines += [f'transport = "{self.transport}"']
            if self.knows_rates and (rate_bps := place.rate_bps(a, b)) is not None:
                lines += [f'rate = "{rate_bps}bit"']
        lines += ['[topics."alarms/#"]', f'deadline = "{place.scenario.deadline_ms:g}ms"']
        lines += ["[security]", f'overlay_secret = "{place.directory / "secret"}"']
        return "\n".join([*lines, ""])


@dataclass(frozen=True, slots=True)
class NatsCluster(System):
    """Routes between every two servers; a message passes one route and no more."""

    peer = NatsServer()

    def cannot(self, scenario: Scenario) -> str | None:
        return None if scenario.layout.is_mesh else "a cluster needs a path between every two sites"

    def broker(self, place: Place, site: str) -> Command:
        others = [one for other in place.scenario.sites if other != site for one in place.all_addresses[other]]
        routes = [f"nats-route://{address}:{LINKS}" for address in others]
        cluster = {"name": "wan", "host": place.to_listen(site), "port": LINKS, "routes": routes}
        # Where there is no other way to take, it is enough to notice a dead connection before TCP does.
        return nats(place, site, "1s" if place.scenario.uplinks else "5s", {"cluster": cluster})


@dataclass(frozen=True, slots=True)
class NatsLeaves(System):
    """Leaf nodes refuse a loop: one connection at a time, the next in reserve."""

    peer = NatsServer()

    def broker(self, place: Place, site: str) -> Command:
        leafnodes: dict[str, object] = {"host": place.to_listen(site), "port": LINKS}
        if upstream := place.upstream(site):
            urls = [f"nats-leaf://{place.addresses[other]}:{LINKS}" for other in upstream]
            # In the order in which they are given, or one beside the direct path is as likely.
            leafnodes["remotes"] = [{"urls": urls, "no_randomize": True}]
            # Sooner than the other end has noticed, the next one finds a loop, and then it waits for half a minute.
            leafnodes["reconnect"] = "2s"
        # A neighbour that is silent is given up after some 3 s; by default that takes more than four minutes.
        return nats(place, site, "1s", {"leafnodes": leafnodes})


def nats(place: Place, site: str, ping_interval: str, more: Mapping[str, object]) -> Command:
    settings = {
        "server_name": site,
        "host": "127.0.0.1",
        "port": CLIENTS,
        "ping_interval": ping_interval,
        "ping_max": 2,
        **more,
    }
    file = place.of(site) / "nats.conf"
    file.write_text(json.dumps(settings))
    return Command([NatsServer().program(), "-c", str(file)], {})


@dataclass(frozen=True, slots=True)
class ZenohMesh(System):
    """Routers with all links, which know those of each other, and weights by which the quickest way is taken."""

    peer = ZenohRouter()

    def broker(self, place: Place, site: str) -> Command:
        sites = place.scenario.sites
        ids = {one: f"{number:02x}" for number, one in enumerate(sites, 0xA1)}
        # Either end of a link would do; both would be two links.
        dialled = [other for other in place.neighbours(site) if place.dials(site, other)]
        task = {
            "name": ids[site],
            "listen": CLIENTS,
            "connect": [f"{place.addresses[other]}:{CLIENTS}" for other in dialled],
            "weights": {ids[other]: round(place.latency_ms(site, other)) for other in place.neighbours(site)},
        }
        return Command([sys.executable, str(Path(__file__).with_name("_wan_zenoh.py")), json.dumps(task)], {})


@dataclass(frozen=True, slots=True)
class MosquittoTree(System):
    """Bridges in a loop would pass messages round for ever: one at a time, the next in reserve.

    The end that dials does not switch off Nagle's algorithm, the other does: so it is dialled from the subscriber's.
    """

    peer = Mosquitto()

    def broker(self, place: Place, site: str) -> Command:
        lines = [f"listener {CLIENTS} 0.0.0.0", "allow_anonymous true", "user root", "set_tcp_nodelay true"]
        # A bridge that is slow holds messages back; by default it would drop what is beyond the first thousand.
        lines += ["max_queued_messages 0", "max_inflight_messages 0"]
        if upstream := place.upstream(site):
            lines += [
                f"connection {site}",
                f"addresses {' '.join(f'{place.addresses[other]}:{CLIENTS}' for other in upstream)}",
                # Bridges know nothing of subscriptions: all would get everything.
                "topic # both 1" if place.is_on_the_way(site) else f"topic {site}/# both 1",
                "cleansession false",  # what could not be sent is kept
                "try_private true",
                "round_robin true",  # stay with the one that works: going back costs seconds
                "restart_timeout 1",
                "keepalive_interval 5",  # the least it takes
                "bridge_protocol_version mqttv311",
                "notifications false",
            ]
        return Command(Mosquitto().with_file(place.of(site), lines), {})


@dataclass(frozen=True, slots=True)
class NoBroker(System):
    """The path itself: the publisher connected to the subscriber over TCP, or with nothing but datagrams."""

    @property
    def bulk_wire(self) -> str:
        return ""

    def cannot(self, scenario: Scenario) -> str | None:
        return None if scenario.layout.is_mesh else "there is no path from the source to the destination"

    def broker(self, place: Place, site: str) -> None:
        del place, site
