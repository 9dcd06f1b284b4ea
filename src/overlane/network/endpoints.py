"""The endpoints of each broker: as the file says, otherwise defaults by the broker's position in the file.

The defaults alone allow all brokers of a file to run on one machine: the first broker has MQTT on port 1883, the second
on 1884, and so on. They use the loopback address, so that nothing is reachable from outside unless the file says so.
Listeners without a default port in `listeners.py`, such as those for TLS, exist only if the file defines them.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

import msgspec

from overlane.errors import ConfigError, Fault
from overlane.network.listeners import LISTENER_KINDS
from overlane.network.schema import Broker, Endpoint, Network
from overlane.network.syntax.table import show_path

HOST = "127.0.0.1"
OVERLAY_PORT = 7001
ADMIN_PORT = 8001
PORT_MAX = 65_535


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses one broker listens on: for clients by the name of the listener, in the order of the table."""

    listeners: dict[str, Endpoint]
    overlay: Endpoint
    admin: Endpoint

    @property
    def mqtt(self) -> Endpoint:
        """Every broker has it."""
        return self.listeners["mqtt"]

    def all(self) -> dict[str, Endpoint]:
        return {**self.listeners, "overlay": self.overlay, "admin": self.admin}


def endpoints(network: Network, name: str, file: str = "<network>") -> Endpoints:
    """Where one broker listens; ConfigError if there is none of that name, or it would listen twice on one address."""
    names = [broker.name for broker in network.brokers]
    if name not in names:
        meant = "".join(get_close_matches(name, names, n=1))
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise ConfigError([Fault(file, 0, "brokers", f'no broker "{name}"', f"one of {shown}", meant)])
    position = names.index(name)
    found = _endpoints(network.brokers[position], position)
    _refuse_clashes([(name, found)], file)
    return found


def endpoints_on_one_machine(network: Network, file: str = "<network>") -> dict[str, Endpoints]:
    """Where every broker listens, in the order of the file; ConfigError if two would listen on the same address."""
    found = {broker.name: _endpoints(broker, position) for position, broker in enumerate(network.brokers)}
    _refuse_clashes(list(found.items()), file)
    return found


def overlay_endpoints(network: Network) -> dict[str, Endpoint]:
    """Where every broker listens for its neighbours; brokers of several machines may listen on the same address."""
    return {broker.name: _endpoints(broker, position).overlay for position, broker in enumerate(network.brokers)}


def _endpoints(broker: Broker, position: int) -> Endpoints:
    listeners = {}
    for kind in LISTENER_KINDS:
        if (given := broker.listeners.get(kind.name)) is not None:
            listeners[kind.name] = given
        elif kind.port is not None:
            listeners[kind.name] = Endpoint(HOST, kind.port + position)
    return Endpoints(
        listeners=listeners,
        overlay=broker.overlay or Endpoint(HOST, OVERLAY_PORT + position),
        admin=broker.admin or Endpoint(HOST, ADMIN_PORT + position),
    )


def _refuse_clashes(brokers: Sequence[tuple[str, Endpoints]], file: str) -> None:
    by_port: dict[int, list[tuple[str, Endpoint]]] = {}
    faults = []
    for field, endpoint in _listeners(brokers):
        if endpoint.port > PORT_MAX:
            faults.append(Fault(file, 0, field, f"no port left for its default, {endpoint}", "an address in the file"))
        others = by_port.setdefault(endpoint.port, [])
        clash = next((other for other, its in others if endpoint.clashes(its)), None)
        if clash is not None:
            allowed = f"another address than {clash}'s; the file can give either of them one"
            faults.append(Fault(file, 0, field, str(endpoint), allowed))
        others.append((field, endpoint))
    if faults:
        raise ConfigError(faults)


def _listeners(brokers: Sequence[tuple[str, Endpoints]]) -> Iterator[tuple[str, Endpoint]]:
    for name, found in brokers:
        for field, endpoint in found.all().items():
            yield show_path(("brokers", name, field)), endpoint
