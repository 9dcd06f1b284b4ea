"""The connection limiter: which new connections of clients are accepted.

Connections are accepted at no more than the allowed rate. Those that come faster are counted and rejected: some may
send CONNECT, and get the reason in CONNACK; the others are closed at once.
"""

import asyncio
import ipaddress
from enum import Enum

from overlane.core.units import SECOND, Nanos
from overlane.node.clients.client_end import ClientEnd
from overlane.node.driver import Driver
from overlane.node.security.tls import user_of
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.counters import Refusal

REJECTED_PER_SECOND_MAX = 64
"""Connections per second that get the reason; others are closed at once."""


class ConnectionDecision(Enum):
    ACCEPT = "accepted"
    REJECT = "rejected with a reason, after CONNECT"
    CLOSE = "closed at once"


class ConnectionLimiter:
    """Accepts connections at a limited rate: a token bucket that holds the connections of one second."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._tokens = float(driver.server.state.limits.connections_per_second)
        self._tokens_ns = driver.clock.now()
        self._answers = float(REJECTED_PER_SECOND_MAX)

    def admit(self) -> ConnectionDecision:
        state, now = self.driver.server.state, self.driver.clock.now()
        rate = state.limits.connections_per_second
        past_s = (now - self._tokens_ns) / SECOND
        self._tokens = min(float(rate), self._tokens + past_s * rate)
        self._answers = min(float(REJECTED_PER_SECOND_MAX), self._answers + past_s * REJECTED_PER_SECOND_MAX)
        self._tokens_ns = now
        if self._tokens >= 1:
            self._tokens -= 1
            return ConnectionDecision.ACCEPT
        self.refuse(Refusal.CONNECTION_RATE, f"more than {rate} connections per second")
        if self._answers < 1:
            return ConnectionDecision.CLOSE
        self._answers -= 1
        return ConnectionDecision.REJECT

    def left_ns(self, since_ns: Nanos) -> Nanos:
        """Time left for CONNECT of a connection that was accepted then."""
        state, now = self.driver.server.state, self.driver.clock.now()
        return max(0, since_ns + state.limits.connect_within_ns - now)

    def refuse(self, why: Refusal, told: str, link: ClientEnd | None = None) -> None:
        """Count a connection that is refused before its first packet."""
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
