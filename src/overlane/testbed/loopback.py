"""The environment of a trial without root: all brokers on loopback with their own ports, links emulated.

Each broker emulates the links it sends on: it delays bytes as long as the link would take, and a loss adds the delay of
a retransmission. The kernel's TCP does not see it.
"""

from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlencode

from msgspec import structs

from overlane.core.units import Nanos
from overlane.errors import ConfigError, Fault, Unavailable
from overlane.local_ports import HOST, free_ports
from overlane.network import Network
from overlane.network.schema import Broker, Endpoint, Plug, Security, Unplug
from overlane.quantities import format_duration, format_rate
from overlane.testbed.environment import admin_request


class LoopbackEnvironment:
    broker_options: tuple[str, ...] = ("--emulate", "--chaos")

    def __init__(self, network: Network) -> None:
        if any(isinstance(event, Plug | Unplug) for event in network.events):
            found = "an uplink that is unplugged"
            raise ConfigError([Fault("<network>", 0, "events", found, "events that work without root")])
        self.network = structs.replace(
            network,
            brokers=tuple(_relocated(broker) for broker in network.brokers),
            security=Security(),
            access=(),
        )
        self._brokers = {broker.name: broker for broker in self.network.brokers}
        self._links = {frozenset(link.ends): link for link in network.links}

    def open(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def command(self, broker: str, argv: Sequence[str]) -> list[str]:  # noqa: ARG002
        return list(argv)

    def admin_request(self, broker: str, method: str, path: str) -> bytes:
        admin = self._brokers[broker].admin
        assert admin is not None
        return admin_request(broker, admin, method, path)

    # Links

    def slow(self, one: str, other: str, latency_ns: Nanos) -> None:
        self._emulate(one, other, latency=format_duration(latency_ns))

    def lose(self, one: str, other: str, loss: float) -> None:
        link = self._links[frozenset((one, other))]
        rate = {} if link.rate_bps is None else {"rate": format_rate(link.rate_bps)}
        self._emulate(one, other, latency=format_duration(link.latency_ns), loss=repr(loss), **rate)

    def cut(self, one: str, other: str) -> None:
        self._emulate(one, other, cut="true")

    def heal(self, one: str, other: str) -> None:
        self._both(one, other, "DELETE", "")

    def unplug(self, broker: str, uplink: str) -> None:
        raise AssertionError(f"{broker}: {uplink} cannot be unplugged here; the constructor rejects such events")

    def plug(self, broker: str, uplink: str) -> None:
        """Nothing to do: it was never unplugged."""

    def _emulate(self, one: str, other: str, **conditions: str) -> None:
        self._both(one, other, "PUT", "?" + urlencode(conditions))

    def _both(self, one: str, other: str, method: str, query: str) -> None:
        """Each direction of a link is emulated by its sender; a broker that is not running sends nothing."""
        for at, peer in ((one, other), (other, one)):
            with suppress(Unavailable):
                self.admin_request(at, method, f"/emulation/{peer}{query}")


def _relocated(broker: Broker) -> Broker:
    mqtt, overlay, admin = (Endpoint(HOST, port) for port in free_ports(3))
    return structs.replace(broker, listeners={"mqtt": mqtt}, overlay=overlay, admin=admin, reach=None)
