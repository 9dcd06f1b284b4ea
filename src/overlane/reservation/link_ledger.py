"""The ledger of a link: what is promised of its rate, in one direction.

A reservation is admitted if it and all others fit the part of the rate that may be reserved. Amounts are whole bytes
per second, rounded up, so that the sum is exact. It holds at every moment: promised <= capacity.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from overlane.reservation.rsvp.intserv import U32_MAX, AdSpec, saturated
from overlane.reservation.rsvp.objects import Sender, Session

Filters = tuple[Sender, ...]
"""The sender of a fixed filter; empty where senders share a reservation. It tells the reservations of a session and
hop apart."""
Key = tuple[Session, Filters]

SHARE = 0.8
"""Of a link's rate that may be reserved, unless configured: the rest is for control and best effort."""
PACKET_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class LinkTerms:
    """What the link to a neighbour can do. Without a rate nothing can be promised of it."""

    rate: float | None
    """Bytes per second."""
    latency_us: int
    share: float = SHARE
    packet_bytes_max: int = PACKET_BYTES_MAX
    """The largest packet that the link takes."""
    ahead_bytes: int | None = None
    """What may have to be sent before a reserved packet, whenever that comes; None: the largest packet."""

    @property
    def capacity(self) -> int:
        return 0 if self.rate is None else math.floor(self.rate * self.share)


class LinkLedger:
    def __init__(self, terms: LinkTerms) -> None:
        self.terms = terms
        self._rates: dict[Key, int] = {}
        self._promised = 0

    def __iter__(self) -> Iterator[tuple[Key, int]]:
        """The reservations and their rates, in the order in which they were admitted."""
        return iter(self._rates.items())

    @property
    def promised(self) -> int:
        """Bytes per second."""
        return self._promised

    @property
    def available(self) -> int:
        return max(0, self.terms.capacity - self._promised)

    def has(self, key: Key) -> bool:
        return key in self._rates

    def admit(self, key: Key, rate: float) -> bool:
        """Set the rate of a reservation, if it fits. If not, what it had stays."""
        wanted = math.ceil(rate)
        total = self._promised - self._rates.get(key, 0) + wanted
        if total > self.terms.capacity:
            return False
        self._rates[key] = wanted
        self._promised = total
        return True

    def release(self, key: Key) -> None:
        self._promised -= self._rates.pop(key, 0)

    def change(self, terms: LinkTerms) -> list[Key]:
        """The link can do more or less than before; the reservations that no longer fit, the latest first."""
        self.terms = terms
        gone: list[Key] = []
        while self._promised > terms.capacity:
            gone.append(next(reversed(self._rates)))
            self.release(gone[-1])
        return gone


def composed(adspec: AdSpec, ledger: LinkLedger, packet_bytes: float) -> AdSpec:
    """What the path can do with this link at its end (RFC 2210, 2212, 2215).

    The link serves a reserved flow its rate, but not in parts: a packet waits for its own bytes at that rate (C), and
    for what is being sent when it comes (D).
    """
    terms = ledger.terms
    latency_us = min(U32_MAX, adspec.latency_us + terms.latency_us)
    if not terms.rate:
        return AdSpec(
            adspec.hops + 1,
            0.0,
            latency_us,
            min(adspec.mtu, terms.packet_bytes_max),
            adspec.c_tot,
            adspec.d_tot_us,
            adspec.c_sum,
            adspec.d_sum_us,
            has_break=True,
            guaranteed_break=True,
            controlled_load_break=True,
        )
    c_bytes = saturated(packet_bytes)
    ahead_bytes = terms.packet_bytes_max if terms.ahead_bytes is None else terms.ahead_bytes
    d_us = saturated(ahead_bytes / terms.rate * 1e6)
    return AdSpec(
        adspec.hops + 1,
        min(adspec.bandwidth, float(ledger.available)),
        latency_us,
        min(adspec.mtu, terms.packet_bytes_max),
        min(U32_MAX, adspec.c_tot + c_bytes),
        min(U32_MAX, adspec.d_tot_us + d_us),
        min(U32_MAX, adspec.c_sum + c_bytes),
        min(U32_MAX, adspec.d_sum_us + d_us),
        adspec.has_break,
        adspec.guaranteed_break,
        adspec.controlled_load_break,
    )
