"""The doorman: who knocks, and whether it may come in now.

Connections are let in at no more than the allowed rate; what comes faster is closed at once and counted.
"""

import asyncio
import ipaddress

from overlane.core.units import SECOND, Nanos
from overlane.mqtt.connection import Peer
from overlane.mqtt.counters import Refusal
from overlane.node.clientlink import ClientLink
from overlane.node.driver import Driver
from overlane.node.tls import user_of


class Doorman:
    """Lets connections in at a bounded rate: as many at once as come in a second, then one by one."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._tokens = float(driver.server.state.limits.connections_per_second)
        self._tokens_ns = driver.clock.now()

    def admits(self) -> bool:
        state, now = self.driver.server.state, self.driver.clock.now()
        rate = state.limits.connections_per_second
        self._tokens = min(float(rate), self._tokens + (now - self._tokens_ns) * rate / SECOND)
        self._tokens_ns = now
        if self._tokens < 1:
            self.refuse(Refusal.CONNECTION_RATE, f"more than {rate} connections a second")
            return False
        self._tokens -= 1
        return True

    def left_ns(self, since_ns: Nanos) -> Nanos:
        """How long one that came then still has to introduce itself."""
        state, now = self.driver.server.state, self.driver.clock.now()
        return max(0, since_ns + state.limits.connect_within_ns - now)

    def refuse(self, why: Refusal, told: str, link: ClientLink | None = None) -> None:
        """Count one that is turned away before the server has seen a packet of it."""
        self.driver.server.state.refuse(why, told, link.connection if link is not None else None)
        self.driver.end_turn_soon()


def peer_of(transport: asyncio.BaseTransport, listener: str) -> Peer:
    address = transport.get_extra_info("peername") or ("?", 0)
    host = str(address[0])
    secure = transport.get_extra_info("ssl_object")
    return Peer(
        f"{host}:{address[1]}",
        is_loopback=_is_loopback(host),
        is_secure=secure is not None,
        certified=user_of(secure.getpeercert()) if secure is not None else None,
        listener=listener,
    )


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
