"""A site behind network address translation: connections are opened from inside.

An outgoing packet opens a mapping for its responses; incoming packets without a mapping are rejected. Addresses are not
rewritten: each site has one address anyway, so nobody outside would see a difference.

Idle mappings expire, those of UDP sooner than those of TCP. When there are too many, the least recently used one is
removed, as real NAT devices do.
"""

from overlane.core.units import SECOND, Nanos
from overlane.testbed.packets import TCP, PacketFlow

OPENINGS_MAX = 65_536
CONNECTION_NS: Nanos = 7_440 * SECOND
DATAGRAM_NS: Nanos = 120 * SECOND
"""How long an opening stays without traffic (RFC 5382 and RFC 4787 ask for at least these)."""


class Translation:
    __slots__ = ("_used_ns",)

    def __init__(self) -> None:
        self._used_ns: dict[PacketFlow, Nanos] = {}
        """The flows of answers that may come in; the least lately used first."""

    def leaves(self, flow: PacketFlow, now: Nanos) -> None:
        self._use(flow.reversed(), now)
        if len(self._used_ns) > OPENINGS_MAX:
            del self._used_ns[next(iter(self._used_ns))]

    def let_in(self, flow: PacketFlow, now: Nanos) -> bool:
        """Whether a packet of this flow may enter; the opening then stays for longer."""
        used_ns = self._used_ns.get(flow)
        if used_ns is None:
            return False
        if now - used_ns > (CONNECTION_NS if flow.protocol == TCP else DATAGRAM_NS):
            del self._used_ns[flow]
            return False
        self._use(flow, now)
        return True

    def _use(self, flow: PacketFlow, now: Nanos) -> None:
        self._used_ns.pop(flow, None)
        self._used_ns[flow] = now
