"""Emulation of a wide-area link on one machine: when bytes sent on a link would arrive at its other end.

A link has a rate, a latency, jitter and loss, as a TCP connection over it would see them: bytes are sent at the rate
and arrive in order, and a loss delays the bytes it hits, and all after them, by the time of a retransmission. Datagrams
share the rate, but arrive independently, and a lost one does not arrive. A cut link transfers nothing; bytes in transit
when it was cut are lost with the connection.

No I/O, and no randomness except what is passed in.
"""

from random import Random

import msgspec

from overlane.core.units import SECOND, Nanos

SEGMENT_BYTES = 1_448
"""What one packet carries: the loss is of packets."""


class LinkConditions(msgspec.Struct, frozen=True, kw_only=True):
    latency_ns: Nanos = 0
    jitter_ns: Nanos = 0
    loss: float = 0.0
    rate_bps: int | None = None
    is_cut: bool = False


class Emulation:
    """One direction of one link."""

    def __init__(self, conditions: LinkConditions, luck: Random) -> None:
        self.conditions = conditions
        self._luck = luck
        self._sent_ns: Nanos = 0
        """When the last byte will have left."""
        self._arrives_ns: Nanos = 0

    def arrival(self, size_bytes: int, now: Nanos) -> Nanos:
        """When so many bytes, handed over now, are at the far end."""
        link = self.conditions
        sent_ns = max(now, self._sent_ns)
        if link.rate_bps is not None:
            sent_ns += size_bytes * 8 * SECOND // link.rate_bps
        self._sent_ns = sent_ns
        arrives_ns = sent_ns + link.latency_ns
        if link.jitter_ns:
            arrives_ns += round(abs(self._luck.gauss(0.0, 1.0)) * link.jitter_ns)
        if link.loss:
            segments = -(-size_bytes // SEGMENT_BYTES)
            if self._luck.random() >= (1.0 - link.loss) ** segments:
                arrives_ns += 2 * link.latency_ns  # until the sender knows of the gap and has retransmitted
        self._arrives_ns = max(self._arrives_ns, arrives_ns)
        return self._arrives_ns

    def datagram(self, size_bytes: int, now: Nanos) -> Nanos | None:
        """When a datagram, handed over now, is at the far end; None if it is lost."""
        link = self.conditions
        sent_ns = max(now, self._sent_ns)
        if link.rate_bps is not None:
            sent_ns += size_bytes * 8 * SECOND // link.rate_bps
            self._sent_ns = sent_ns
        if link.is_cut or (link.loss and self._luck.random() < link.loss):
            return None
        jitter_ns = round(abs(self._luck.gauss(0.0, 1.0)) * link.jitter_ns) if link.jitter_ns else 0
        return sent_ns + link.latency_ns + jitter_ns

    def backlog_ns(self, now: Nanos) -> Nanos:
        """How long what was handed over will take to leave."""
        return max(0, self._sent_ns - now)

    def bytes_in(self, duration_ns: Nanos, bytes_max: int) -> int:
        """How much leaves in this time, but at least one byte and at most so many."""
        rate_bps = self.conditions.rate_bps
        return bytes_max if rate_bps is None else max(1, min(bytes_max, duration_ns * rate_bps // (8 * SECOND)))
