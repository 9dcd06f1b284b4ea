"""A wide area played on one machine: when bytes handed to a link would have arrived at its far end.

A link has a rate, a latency, jitter and loss, as a TCP connection over it would feel them: bytes leave one after the
other at the rate, arrive in order, and a loss delays what it hits, and all behind it, by the time a retransmission
takes. Datagrams share the rate with them, but arrive each for itself, and what is lost is lost. A cut link passes
nothing; what was under way when it was cut is lost with the connection.

No I/O, and no randomness but what is passed in.
"""

from random import Random

import msgspec

from overlane.core.units import SECOND, Nanos

SEGMENT_BYTES = 1_448
"""What one packet carries: the loss is of packets."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    latency_ns: Nanos = 0
    jitter_ns: Nanos = 0
    loss: float = 0.0
    rate_bps: int | None = None
    is_cut: bool = False


class Emulation:
    """One direction of one link."""

    def __init__(self, conditions: Conditions, luck: Random) -> None:
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
                arrives_ns += 2 * link.latency_ns  # until the sender hears of the gap and has filled it
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
