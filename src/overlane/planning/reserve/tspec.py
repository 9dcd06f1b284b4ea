"""The traffic of a flow as Integrated Services describe it: a token bucket, a peak, and the sizes of its packets.

In any time T a conforming flow sends at most M + p T and at most b + r T bytes (RFC 2212, section "Invocation
Information"); packets shorter than m count as m. An unknown peak is infinite, as RFC 2210 allows.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TSpec:
    """The RFC's five letters, spelled out: r, b, p, m, M."""

    rate: float  # r, bytes per second
    bucket_bytes: float  # b
    peak: float  # p, bytes per second; infinite if not known
    size_min_bytes: float  # m
    size_max_bytes: float  # M

    def admits(self, other: "TSpec") -> bool:
        """Whether whatever conforms to `other` conforms to this one too (the RFC's ordering of TSpecs)."""
        return (
            self.rate >= other.rate
            and self.bucket_bytes >= other.bucket_bytes
            and self.peak >= other.peak
            and self.size_min_bytes <= other.size_min_bytes
            and self.size_max_bytes >= other.size_max_bytes
        )


def least_of(one: TSpec, other: TSpec) -> TSpec:
    """The traffic that both describe: the lesser where they can be ordered, else the RFC's minimum, part by part.

    The RFC's minimum takes the larger bucket, so that no burst that one side announced is cut.
    """
    if one.admits(other):
        return other
    if other.admits(one):
        return one
    return TSpec(
        rate=min(one.rate, other.rate),
        bucket_bytes=max(one.bucket_bytes, other.bucket_bytes),
        peak=min(one.peak, other.peak),
        size_min_bytes=min(one.size_min_bytes, other.size_min_bytes),
        size_max_bytes=min(one.size_max_bytes, other.size_max_bytes),
    )
