"""The ground of a trial without root: all brokers on the loopback, each with ports of its own, links emulated.

A link is emulated where it is sent on, by the broker itself: bytes are held back for as long as the link would take,
and a loss delays them as a retransmission would. The kernels' TCP sees none of it.
"""

import random
import socket
from collections.abc import Sequence
from contextlib import closing, suppress
from urllib.parse import urlencode

from msgspec import structs

from overlane.core.units import Nanos
from overlane.errors import ConfigError, Fault, Unavailable
from overlane.network import Network
from overlane.network.schema import Broker, Endpoint, Plug, Security, Unplug
from overlane.network.units import format_duration, format_rate
from overlane.testbed.asking import ask

HOST = "127.0.0.1"


class Loopback:
    broker_options: tuple[str, ...] = ("--emulate", "--chaos")

    def __init__(self, network: Network) -> None:
        if any(isinstance(event, Plug | Unplug) for event in network.events):
            found = "an uplink that is unplugged"
            raise ConfigError([Fault("<network>", 0, "events", found, "what can be played without root")])
        self.network = structs.replace(
            network,
            brokers=tuple(_relocated(broker) for broker in network.brokers),
            security=Security(),
            access=(),
        )
        self._brokers = {broker.name: broker for broker in self.network.brokers}
        self._links = {frozenset(link.ends): link for link in network.links}

    def open(self) -> None:
        """There is nothing to do."""

    def close(self) -> None:
        """There is nothing to undo."""

    def command(self, broker: str, argv: Sequence[str]) -> list[str]:  # noqa: ARG002
        return list(argv)

    def ask(self, broker: str, method: str, path: str) -> bytes:
        admin = self._brokers[broker].admin
        assert admin is not None
        return ask(broker, admin, method, path)

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
        raise AssertionError(f"{broker}: {uplink} cannot be unplugged here, and was refused before")

    def plug(self, broker: str, uplink: str) -> None:
        """It was never unplugged: here, brokers are connected in one way."""

    def _emulate(self, one: str, other: str, **conditions: str) -> None:
        self._both(one, other, "PUT", "?" + urlencode(conditions))

    def _both(self, one: str, other: str, method: str, query: str) -> None:
        """Each direction of a link is its sender's; one that does not run does not send."""
        for at, peer in ((one, other), (other, one)):
            with suppress(Unavailable):
                self.ask(at, method, f"/emulation/{peer}{query}")


def _relocated(broker: Broker) -> Broker:
    mqtt, overlay, admin = (Endpoint(HOST, port) for port in free_ports(3))
    return structs.replace(
        broker, mqtt=mqtt, overlay=overlay, admin=admin, mqtt_tls=None, websocket=None, websocket_tls=None, reach=None
    )


PORTS = range(20_000, 32_000)
"""Below those that the system gives to connections: one of these could take the port of a broker that is being started
again, and who dials the port of a broker that is away could even reach himself."""
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, and that were not given away before."""
    luck = random.SystemRandom()
    ports: list[int] = []
    while len(ports) < count:
        port = luck.choice(PORTS)
        if port not in _given and _is_free(port):
            _given.add(port)
            ports.append(port)
    return ports


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
