"""The environment of a trial with root: every broker at its own site in a wide area, with the links of the file.

The path between two sites is the link between their brokers; sites without a link cannot reach each other. A broker
with uplinks has an address per uplink. A broker that accepts no connections (`reach = []`) is behind NAT: only
connections that it opened itself pass.
"""

from collections.abc import Sequence

from msgspec import structs

from overlane.core.units import Nanos
from overlane.errors import ConfigError, Fault
from overlane.network import Network
from overlane.network.schema import Back, Broker, Endpoint, Link, Security, Uplink
from overlane.testbed import wide_area
from overlane.testbed.direction import Carried, Conditions
from overlane.testbed.environment import admin_request
from overlane.testbed.wide_area import SITES_MAX, Site, WideArea

MQTT = Endpoint("127.0.0.1", 1883)
ADMIN = Endpoint("127.0.0.1", 8001)
OVERLAY_PORT = 7001
REAL_TIME = ("chrt", "--rr", "1")
"""Lower than the emulator, on which all depend."""


class SiteEnvironment:
    broker_options = ()

    def __init__(self, network: Network, *, is_urgent: bool = False) -> None:
        """`is_urgent`: run brokers and clients with real-time priority."""
        if len(network.brokers) > SITES_MAX:
            found = f"{len(network.brokers)} of them"
            raise ConfigError([Fault("<network>", 0, "brokers", found, f"at most {SITES_MAX} in a wide area")])
        self._is_urgent = is_urgent
        self._area = WideArea(
            [_site(broker) for broker in network.brokers], _paths(network.links), seed=network.simulation.seed
        )
        self.network = structs.replace(
            network,
            brokers=tuple(self._relocated(broker) for broker in network.brokers),
            # Clients run at the site of their broker; nobody else is in the wide area.
            security=Security(overlay_open=True),
            access=(),
        )

    def open(self) -> None:
        self._area.open()

    def close(self) -> None:
        self._area.close()

    def command(self, broker: str, argv: Sequence[str]) -> list[str]:
        return self._area.command(broker, [*(REAL_TIME if self._is_urgent else ()), *argv])

    def admin_request(self, broker: str, method: str, path: str) -> bytes:
        return admin_request(broker, ADMIN, method, path, lambda: self._area.inside(broker))

    def carried(self) -> dict[tuple[str, str], Carried]:
        return self._area.carried()

    # Links

    def slow(self, one: str, other: str, latency_ns: Nanos) -> None:
        self._area.change(one, other, latency_ns=latency_ns)

    def lose(self, one: str, other: str, loss: float) -> None:
        self._area.change(one, other, loss=loss)

    def cut(self, one: str, other: str) -> None:
        self._area.change(one, other, is_cut=True)

    def heal(self, one: str, other: str) -> None:
        self._area.restore(one, other)

    def unplug(self, broker: str, uplink: str) -> None:
        self._area.unplug(broker, uplink)

    def plug(self, broker: str, uplink: str) -> None:
        self._area.plug_in(broker, uplink)

    def _relocated(self, broker: Broker) -> Broker:
        addresses = tuple(Endpoint(address, OVERLAY_PORT) for address in self._area.addresses(broker.name))
        return structs.replace(
            broker,
            listeners={"mqtt": MQTT},
            admin=ADMIN,
            overlay=Endpoint("0.0.0.0", OVERLAY_PORT),
            reach=() if broker.reach == () else addresses,
        )


def _site(broker: Broker) -> Site:
    if not broker.uplinks:
        return Site(broker.name, is_behind_nat=broker.reach == ())
    uplinks = []
    for uplink in broker.uplinks:
        conditions = _conditions(uplink)
        adds_something = conditions != Conditions(queue_bytes=uplink.queue_bytes)
        uplinks.append(
            wide_area.Uplink(uplink.name, conditions, conditions) if adds_something else wide_area.Uplink(uplink.name)
        )
    return Site(broker.name, tuple(uplinks), is_behind_nat=broker.reach == ())


def _paths(links: Sequence[Link]) -> dict[tuple[str, str], Conditions]:
    return {
        (end, other): _conditions(link.from_end(end)) for link in links for end, other in (link.ends, link.ends[::-1])
    }


def _conditions(said: Link | Back | Uplink) -> Conditions:
    return Conditions(
        latency_ns=said.latency_ns,
        jitter_ns=said.jitter_ns,
        loss=said.loss,
        rate_bps=said.rate_bps,
        queue_bytes=said.queue_bytes,
    )
