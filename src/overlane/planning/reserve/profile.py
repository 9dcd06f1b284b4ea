"""Profiles: a flow in the terms of an application (IndiQoS, Table 1), and the corresponding TSpec.

    size    one size for all notifications, or the minimum and the maximum
    rate    average, and the maximum if known; or the period of a strictly periodic flow; or a token bucket

A rate counts notifications, a TSpec counts bytes: every notification counts with the maximum size. The rest of a TSpec
follows from the profile, with rates over any interval of one second:

    period T            r = p = M/T, b = M: at most one notification more than T's worth in any time
    average and maximum r = average M, p = maximum M, b = M + (p - r) 1 s: the peak may last for a second
    average alone       r = average M, p unknown, b = max(M, r 1 s): the notifications of a second may come at once
    token bucket        r, b, p as given, in bytes and bytes per second
"""

import math
from dataclasses import dataclass

from overlane.planning.problem import BadProblem
from overlane.planning.reserve.tspec import TSpec

BURST_S = 1.0


@dataclass(frozen=True, slots=True)
class TokenBucket:
    r: float  # bytes per second
    b: float  # bytes
    p: float | None = None  # bytes per second; None: not known


@dataclass(frozen=True, slots=True)
class Profile:
    """The description of a flow by one side; unknown values are None."""

    size: float | None = None
    size_min: float | None = None
    size_max: float | None = None
    rate_avg: float | None = None  # notifications per second
    rate_max: float | None = None  # notifications per second
    period_s: float | None = None
    token_bucket: TokenBucket | None = None

    def is_empty(self) -> bool:
        return self == Profile()


def tspec_of(profile: Profile, whose: str) -> TSpec:
    """The TSpec of a profile; `whose` names it where something in it must be refused."""
    for field_name in ("size", "size_min", "size_max", "rate_avg", "rate_max", "period_s"):
        _positive(f"{whose}.{field_name}", getattr(profile, field_name))
    size_min, size_max = _sizes(profile, whose)
    rate, bucket_bytes, peak = _flow(profile, size_max, whose)
    return TSpec(rate, bucket_bytes, peak, size_min, size_max)


def _sizes(profile: Profile, whose: str) -> tuple[float, float]:
    size, size_min, size_max = profile.size, profile.size_min, profile.size_max
    if size is not None:
        if size_min is not None or size_max is not None:
            raise BadProblem(f"{whose}.size", "also size_min or size_max", "size alone, or size_min with size_max")
        return size, size
    if size_min is None and size_max is None:
        raise BadProblem(f"{whose}.size", "a rate without a size", "size, or size_min with size_max")
    if size_min is None:
        raise BadProblem(f"{whose}.size_min", "size_min without size_max", "both, or size alone")
    if size_max is None:
        raise BadProblem(f"{whose}.size_max", "size_max without size_min", "both, or size alone")
    if size_min > size_max:
        raise BadProblem(f"{whose}.size_min", f"{size_min:g}", f"at most size_max, {size_max:g}")
    return size_min, size_max


def _flow(profile: Profile, size_max: float, whose: str) -> tuple[float, float, float]:
    """Rate, bucket and peak."""
    given = [name for name in ("rate_avg", "period_s", "token_bucket") if getattr(profile, name) is not None]
    if len(given) > 1:
        raise BadProblem(f"{whose}.{given[1]}", f"also {given[0]}", "one of rate_avg, period_s and token_bucket")
    if profile.rate_max is not None and profile.rate_avg is None:
        raise BadProblem(f"{whose}.rate_max", "rate_max without rate_avg", "rate_max only with rate_avg")
    if profile.period_s is not None:
        rate = size_max / profile.period_s
        return rate, size_max, rate
    if profile.token_bucket is not None:
        return _bucket(profile.token_bucket, size_max, f"{whose}.token_bucket")
    if profile.rate_avg is None:
        raise BadProblem(f"{whose}.rate_avg", "a size without a rate", "rate_avg, period_s or token_bucket")
    rate = profile.rate_avg * size_max
    if profile.rate_max is None:
        return rate, max(size_max, rate * BURST_S), math.inf
    if profile.rate_max < profile.rate_avg:
        raise BadProblem(f"{whose}.rate_max", f"{profile.rate_max:g}", f"at least rate_avg, {profile.rate_avg:g}")
    peak = profile.rate_max * size_max
    return rate, size_max + (peak - rate) * BURST_S, peak


def _bucket(bucket: TokenBucket, size_max: float, where: str) -> tuple[float, float, float]:
    for field_name in ("r", "b", "p"):
        _positive(f"{where}.{field_name}", getattr(bucket, field_name))
    peak = math.inf if bucket.p is None else bucket.p
    if peak < bucket.r:
        raise BadProblem(f"{where}.p", f"{peak:g}", f"at least r, {bucket.r:g}")
    if bucket.b < size_max:
        raise BadProblem(f"{where}.b", f"{bucket.b:g}", f"at least the greatest notification, {size_max:g}")
    return bucket.r, bucket.b, peak


def _positive(field_name: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise BadProblem(field_name, f"{value:g}", "a finite number above 0")
