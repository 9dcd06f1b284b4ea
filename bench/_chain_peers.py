"""The systems of bench/chain.py: several brokers of one kind, connected by a layout, each a separate process.

A layout defines who dials whom. Overlane's brokers and Zenoh's routers have all their links at once. Bridges of
Mosquitto and leaf nodes of NATS must not: with two paths between the same brokers, messages of Mosquitto would loop,
and NATS refuses the second. They have one at a time and use the next when it fails; in a row there is no difference.

Each system uses its defaults; any configuration beyond the connections has a comment with its reason.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from _load import Load
from _peers import Mosquitto, NatsServer, Overlane, Peer, Running, ZenohRouter, started
from _wire import HOST
from overlane.local_ports import free_ports

LINK_LATENCY = "0.1ms"
"""What Overlane's network file says of the links; nothing is emulated."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Who dials whom, in which order. Messages go from the first broker to the last."""

    dials: Mapping[str, Sequence[str]]

    @property
    def names(self) -> list[str]:
        return list(self.dials)


ROW = Layout({"a": ["b"], "b": ["c"], "c": []})
SQUARE = Layout({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []})


@dataclass(frozen=True, slots=True)
class Site:
    """Where the brokers of a layout are."""

    layout: Layout
    directory: Path
    client_ports: Mapping[str, int]
    link_ports: Mapping[str, int]
    admin_ports: Mapping[str, int]

    def of(self, broker: str) -> Path:
        return self.directory / broker

    def dialled_by(self, broker: str, ports: Mapping[str, int]) -> list[str]:
        return [f"{HOST}:{ports[other]}" for other in self.layout.dials[broker]]


class Joining(Peer, Protocol):
    """A broker that can be one of several."""

    def member(self, site: Site, broker: str) -> list[str]:
        """The command that runs it."""


class OverlaneBrokers(Overlane):
    def member(self, site: Site, broker: str) -> list[str]:
        file = site.of(broker) / "network.toml"
        file.write_text(self.network(site))
        return self.broker(file, broker, site.of(broker) / "data")

    def network(self, site: Site) -> str:
        lines = []
        for name, others in site.layout.dials.items():
            ports = {"mqtt": site.client_ports, "overlay": site.link_ports, "admin": site.admin_ports}
            lines += [f"[brokers.{name}]", *(f'{kind} = "{HOST}:{of[name]}"' for kind, of in ports.items())]
            for other in others:
                lines += ["[[links]]", f'ends = ["{name}", "{other}"]', f'latency = "{LINK_LATENCY}"']
        return "\n".join([*lines, ""])


class MosquittoBridges(Mosquitto):
    def member(self, site: Site, broker: str) -> list[str]:
        lines = self.lines(site.client_ports[broker], site.of(broker))
        addresses = site.dialled_by(broker, site.client_ports)
        if addresses:
            lines += [
                f"connection {broker}",
                f"addresses {' '.join(addresses)}",
                f"topic # both {1 if self.persistent else 0}",
                "try_private true",
                "round_robin true",  # the next address when one fails, rather than the same one again first
                "restart_timeout 1",  # a bridge that has lost its broker waits 5 to 30 s otherwise
            ]
        return self.with_file(site.of(broker), lines)


class NatsLeafNodes(NatsServer):
    def member(self, site: Site, broker: str) -> list[str]:
        urls = [f"nats-leaf://{address}" for address in site.dialled_by(broker, site.link_ports)]
        leafnodes: dict[str, object] = {"host": HOST, "port": site.link_ports[broker]}
        if urls:
            leafnodes["remotes"] = [{"urls": urls}]
        settings = {"server_name": broker, "host": HOST, "port": site.client_ports[broker], "leafnodes": leafnodes}
        file = site.of(broker) / "nats.conf"
        file.write_text(json.dumps(settings))
        return [self.program(), "-c", str(file)]


class ZenohRouters(ZenohRouter):
    def member(self, site: Site, broker: str) -> list[str]:
        others = [site.client_ports[other] for other in site.layout.dials[broker]]
        return [*self.command(site.client_ports[broker], site.of(broker)), *map(str, others)]


@dataclass(frozen=True, slots=True)
class Joined:
    """Brokers that run, by name, in the order of the layout."""

    brokers: Mapping[str, Running]

    @property
    def first(self) -> Running:
        return next(iter(self.brokers.values()))

    @property
    def last(self) -> Running:
        return list(self.brokers.values())[-1]

    @property
    def load(self) -> Load:
        """With subscribers at the last that wait until what is published at the first reaches them."""
        return self.last.load.from_afar(self.first.port)

    @property
    def cpu_s(self) -> float:
        return sum(broker.cpu_s for broker in self.brokers.values())

    @property
    def memory_bytes(self) -> int:
        return sum(broker.memory_bytes for broker in self.brokers.values())


@contextmanager
def joined(peer: Joining, layout: Layout, directory: Path) -> Iterator[Joined]:
    """Starts those that are dialled before those that dial, and ends all with the block."""
    names = layout.names
    ports = iter(free_ports(3 * len(names)))
    site = Site(layout, directory, *(dict(zip(names, ports, strict=False)) for _ in range(3)))
    brokers = dict[str, Running]()
    with ExitStack() as stack:
        for name in reversed(names):
            site.of(name).mkdir(parents=True)
            command = peer.member(site, name)
            brokers[name] = stack.enter_context(started(peer, command, site.client_ports[name], site.of(name)))
        yield Joined({name: brokers[name] for name in names})


@contextmanager
def row(peer: Joining, directory: Path) -> Iterator[Joined]:
    with joined(peer, ROW, directory) as brokers:
        yield brokers


@contextmanager
def square(peer: Joining, directory: Path) -> Iterator[Joined]:
    with joined(peer, SQUARE, directory) as brokers:
        yield brokers
