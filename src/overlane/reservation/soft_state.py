"""Times of soft state (RFC 2205, section 3.7).

State that a neighbour does not refresh for (K + 0.5) * 1.5 * R dies; with R = 30 s and K = 3 that is 157.5 s. Refreshes
of different brokers are spread over 0.5 to 1.5 R, by their identities, so that they do not come together.
"""

from dataclasses import dataclass

SECOND = 10**9
NEVER = 1 << 62
REFRESH_MS = 30_000
REFRESH_MS_MIN, REFRESH_MS_MAX = 1_000, 600_000
LOST_MAX = 3
"""K: so many refreshes may be lost, less one."""
BLOCKADE_NS = 2 * REFRESH_MS * 10**6
"""How long a request that was refused upstream is left out, if nothing else changes (Kb = 2)."""
ANSWER_NS = 2 * SECOND
"""How long a subscriber waits for an answer."""
RESTORE_NS = 10 * SECOND
"""How long another path is sought for a reservation whose path was lost, before the subscriber is told."""


@dataclass(frozen=True, slots=True)
class SoftState:
    spread: int
    """Any number; the identity of the broker."""
    refresh_ms: int = REFRESH_MS

    def expiry(self, refresh_ms: int, now: int) -> int:
        """When state dies that a neighbour refreshes at this period."""
        period_ms = min(max(refresh_ms, REFRESH_MS_MIN), REFRESH_MS_MAX)
        return now + (2 * LOST_MAX + 1) * 3 * period_ms * 10**6 // 4

    def next_refresh(self, now: int) -> int:
        """Between 0.5 and 1.5 periods from now."""
        jitter = (self.spread * 2_654_435_761 + now // 10**6) % 1000
        return now + self.refresh_ms * (500 + jitter) * 1000
