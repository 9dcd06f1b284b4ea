"""The rate to reserve so that no notification is late (RFC 2212; IndiQoS, inequalities 1 to 3).

A flow that conforms to its TSpec and is served at rate R over a path with the error terms C_tot and D_tot is delayed by
at most

    (b - M)/R * (p - R)/(p - r) + (M + C_tot)/R + D_tot    if r <= R < p
    (M + C_tot)/R + D_tot                                  if R >= p

Both fall as R grows and are equal at R = p, so the lowest R that meets a latency l with slack S is found by solving the
case that applies. With T = l - D_tot - S, the second applies exactly if (M + C_tot)/T >= p; the first gives R = (p k +
M + C_tot)/(T + k), k = (b - M)/(p - r), and for an unknown, infinite peak (b + C_tot)/T. A latency not above D_tot + S
is impossible: that part of the delay does not depend on the rate.
"""

import math
from dataclasses import dataclass

from overlane.planning.problem import BadProblem, NoSolution
from overlane.planning.reserve.tspec import TSpec


@dataclass(frozen=True, slots=True)
class PathTerms:
    """What the elements of a path add up to: delay that depends on the rate, in bytes, and delay that does not."""

    c_tot_bytes: float
    d_tot_s: float


@dataclass(frozen=True, slots=True)
class RSpec:
    rate: float  # R, bytes per second
    slack_s: float  # S


def delay_bound_s(tspec: TSpec, path: PathTerms, rate: float) -> float:
    """The longest that a conforming notification can take when `rate`, at least r, is reserved."""
    last_bit_s = (tspec.size_max_bytes + path.c_tot_bytes) / rate + path.d_tot_s
    if rate >= tspec.peak:
        return last_bit_s
    burst_s = (tspec.bucket_bytes - tspec.size_max_bytes) / rate
    if math.isinf(tspec.peak):
        return burst_s + last_bit_s
    return burst_s * (tspec.peak - rate) / (tspec.peak - tspec.rate) + last_bit_s


def rspec_for(tspec: TSpec, path: PathTerms, latency_s: float, slack_s: float) -> RSpec:
    """The least reservation that keeps the latency with this slack to spare, never below the flow's own rate."""
    not_negative("path.c_tot_bytes", path.c_tot_bytes)
    not_negative("path.d_tot_s", path.d_tot_s)
    not_negative("slack_s", slack_s)
    not_negative("subscriber.latency_s", latency_s)
    queueing_s = latency_s - path.d_tot_s - slack_s
    if queueing_s <= 0:
        raise _out_of_reach(tspec, path, latency_s, slack_s)
    return RSpec(max(tspec.rate, _least_rate(tspec, path, queueing_s)), slack_s)


def not_negative(field_name: str, value: float) -> None:
    """Refuse a time or an amount that cannot be one."""
    if not (math.isfinite(value) and value >= 0):
        raise BadProblem(field_name, f"{value:g}", "a finite number, 0 or more")


def _least_rate(tspec: TSpec, path: PathTerms, queueing_s: float) -> float:
    last_bit_bytes = tspec.size_max_bytes + path.c_tot_bytes
    if last_bit_bytes >= tspec.peak * queueing_s or tspec.peak == tspec.rate:
        return last_bit_bytes / queueing_s
    if math.isinf(tspec.peak):
        return (tspec.bucket_bytes + path.c_tot_bytes) / queueing_s
    burst_s = (tspec.bucket_bytes - tspec.size_max_bytes) / (tspec.peak - tspec.rate)
    return (tspec.peak * burst_s + last_bit_bytes) / (queueing_s + burst_s)


def _out_of_reach(tspec: TSpec, path: PathTerms, latency_s: float, slack_s: float) -> NoSolution:
    floor_s = path.d_tot_s + slack_s
    nearest: dict[str, object] = {
        "latency_s": floor_s,  # approached as R grows, not met
        "latency_at_r_s": delay_bound_s(tspec, path, tspec.rate) + slack_s,
    }
    missing = (
        f"subscriber.latency_s {latency_s:g} is not above D_tot + S = {path.d_tot_s:g} + {slack_s:g} s, "
        f"which no rate can shorten: the least latency that could be had is just over {floor_s:g} s"
    )
    if math.isfinite(tspec.peak):
        at_peak_s = delay_bound_s(tspec, path, tspec.peak) + slack_s
        nearest["latency_at_p_s"] = at_peak_s
        missing += f", and {at_peak_s:g} s with the peak reserved"
    return NoSolution(missing, nearest)
