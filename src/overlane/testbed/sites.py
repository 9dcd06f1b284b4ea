"""The ground of a trial with root: every broker at a site of its own in a wide area, links as the file says.

The path between two sites is the file's link between their brokers; where there is none, neither reaches the other. A
broker with uplinks is reached at the address of each. One that nobody is to dial (`reach = []`) is behind NAT: what it
did not begin itself is refused on its way to it.
"""

from collections.abc import Sequence

from msgspec import structs

from overlane.core.units import Nanos
from overlane.errors import ConfigError, Fault
from overlane.network import Network
from overlane.network.schema import Back, Broker, Endpoint, Link, Security, Uplink
from overlane.testbed import widearea
from overlane.testbed.asking import ask
from overlane.testbed.direction import Carried, Conditions
from overlane.testbed.widearea import SITES_MAX, Site, WideArea

MQTT = Endpoint("127.0.0.1", 1883)
ADMIN = Endpoint("127.0.0.1", 8001)
OVERLAY_PORT = 7001
URGENTLY = ("chrt", "--rr", "1")
"""Below the emulator, which all of them depend on."""


class Sites:
    broker_options = ()

    def __init__(self, network: Network, *, is_urgent: bool = False) -> None:
        """`is_urgent`: brokers and clients run before anything else on the machine, so that it does not disturb."""
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
            # Clients are at their broker's own site. Brokers are not, and nobody else is in the wide area.
            security=Security(overlay_open=True),
            access=(),
        )

    def open(self) -> None:
        self._area.open()

    def close(self) -> None:
        self._area.close()

    def command(self, broker: str, argv: Sequence[str]) -> list[str]:
        return self._area.command(broker, [*(URGENTLY if self._is_urgent else ()), *argv])

    def ask(self, broker: str, method: str, path: str) -> bytes:
        return ask(broker, ADMIN, method, path, lambda: self._area.inside(broker))

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
            mqtt=MQTT,
            admin=ADMIN,
            overlay=Endpoint("0.0.0.0", OVERLAY_PORT),
            reach=() if broker.reach == () else addresses,
            mqtt_tls=None,
            websocket=None,
            websocket_tls=None,
        )


def _site(broker: Broker) -> Site:
    if not broker.uplinks:
        return Site(broker.name, is_behind_nat=broker.reach == ())
    uplinks = []
    for uplink in broker.uplinks:
        conditions = _conditions(uplink)
        adds_something = conditions != Conditions(queue_bytes=uplink.queue_bytes)
        uplinks.append(
            widearea.Uplink(uplink.name, conditions, conditions) if adds_something else widearea.Uplink(uplink.name)
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
