"""Policing: whether the messages of a flow keep to its profile, by two token buckets (RFC 2212, "Policing").

One has the rate r and the depth b, the other the peak rate p and the depth of one message. A message that finds no
tokens takes none. Nothing here reads a clock.
"""

import math

from overlane.core.units import SECOND, Nanos
from overlane.planning.reserve import TSpec


class Policer:
    def __init__(self, tspec: TSpec, now: Nanos) -> None:
        self.tspec = tspec
        self._tokens = tspec.bucket_bytes
        self._peak_tokens = tspec.size_max_bytes
        self._at_ns = now

    def change(self, tspec: TSpec) -> None:
        self.tspec = tspec
        self._tokens = min(self._tokens, tspec.bucket_bytes)
        self._peak_tokens = min(self._peak_tokens, tspec.size_max_bytes)

    def conforms(self, size: float, now: Nanos) -> bool:
        """Whether a message of this size is within the profile; if so it is charged."""
        tspec = self.tspec
        elapsed_s = max(0, now - self._at_ns) / SECOND
        self._at_ns = max(now, self._at_ns)
        self._tokens = min(tspec.bucket_bytes, self._tokens + elapsed_s * tspec.rate)
        if size > tspec.size_max_bytes:
            return False
        size = max(size, tspec.size_min_bytes)
        if math.isfinite(tspec.peak):
            self._peak_tokens = min(tspec.size_max_bytes, self._peak_tokens + elapsed_s * tspec.peak)
            if size > self._peak_tokens:
                return False
        if size > self._tokens:
            return False
        self._tokens -= size
        if math.isfinite(tspec.peak):
            self._peak_tokens -= size
        return True

    def wait_ns(self, now: Nanos) -> Nanos:
        """How long until a message of any allowed size conforms."""
        tspec = self.tspec
        size, elapsed_s = tspec.size_max_bytes, max(0, now - self._at_ns) / SECOND
        wait_s = max(0.0, (size - self._tokens) / tspec.rate - elapsed_s)
        if math.isfinite(tspec.peak):
            wait_s = max(wait_s, (size - self._peak_tokens) / tspec.peak - elapsed_s)
        return math.ceil(wait_s * SECOND)
