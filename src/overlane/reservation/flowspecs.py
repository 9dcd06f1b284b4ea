"""Requests compared and merged (RFC 2205, section 2.2; RFC 2212, "Ordering and Merging").

Several requests for the same traffic are one upstream: the least that satisfies them all. Guaranteed service is more
than controlled load.
"""

import math
from collections.abc import Iterable
from functools import reduce

from overlane.planning.reserve import PathTerms, RSpec, TSpec, delay_bound_s, least_of, rspec_for
from overlane.reservation.rsvp.intserv import AdSpec, FlowSpec, float_up


def covers(one: FlowSpec, other: FlowSpec) -> bool:
    """Whether who asked for `other` has it where `one` is reserved."""
    if other.rspec is not None and (one.rspec is None or one.rspec.slack_s > other.rspec.slack_s):
        return False
    return (
        one.rate >= other.rate
        and one.tspec.rate >= other.tspec.rate
        and one.tspec.bucket_bytes >= other.tspec.bucket_bytes
        and one.tspec.peak >= other.tspec.peak
        and one.tspec.size_min_bytes <= other.tspec.size_min_bytes
    )


def merged(flowspecs: Iterable[FlowSpec]) -> FlowSpec:
    """The least upper bound of one or more requests."""
    return reduce(_both, flowspecs)


def _both(one: FlowSpec, other: FlowSpec) -> FlowSpec:
    if covers(one, other) and one.tspec.size_max_bytes <= other.tspec.size_max_bytes:
        return one
    tspec = TSpec(
        max(one.tspec.rate, other.tspec.rate),
        max(one.tspec.bucket_bytes, other.tspec.bucket_bytes),
        max(one.tspec.peak, other.tspec.peak),
        min(one.tspec.size_min_bytes, other.tspec.size_min_bytes),
        # The RFC's merge takes the smaller: a larger packet would not reach both.
        min(one.tspec.size_max_bytes, other.tspec.size_max_bytes),
    )
    rspecs = [rspec for rspec in (one.rspec, other.rspec) if rspec is not None]
    if not rspecs:
        return FlowSpec(tspec)
    # A controlled load beside it may have the higher rate.
    rate = max(one.rate, other.rate, tspec.rate)
    return FlowSpec(tspec, RSpec(rate, min(rspec.slack_s for rspec in rspecs)))


def path_terms(adspec: AdSpec) -> PathTerms:
    """The error terms of a path, with its latency, which no rate shortens."""
    return PathTerms(adspec.c_tot, (adspec.d_tot_us + adspec.latency_us) / 1e6)


def on_wire(flowspec: FlowSpec) -> FlowSpec:
    """The request as messages carry it: all brokers of a path compare the same numbers."""
    tspec = flowspec.tspec
    rounded = TSpec(
        float_up(tspec.rate),
        float_up(tspec.bucket_bytes),
        float_up(tspec.peak),
        math.floor(tspec.size_min_bytes),
        math.ceil(tspec.size_max_bytes),
    )
    if flowspec.rspec is None:
        return FlowSpec(rounded)
    rate = max(rounded.rate, float_up(flowspec.rspec.rate))
    return FlowSpec(rounded, RSpec(rate, math.floor(flowspec.rspec.slack_s * 1e6) / 1e6))


def request_for(published: TSpec, asked: TSpec, latency_s: float | None, adspec: AdSpec) -> FlowSpec:
    """What to ask the path for. Raises `NoSolution` if no rate makes it as quick as that."""
    tspec = least_of(published, asked)
    if latency_s is None:
        return on_wire(FlowSpec(tspec))
    return on_wire(FlowSpec(tspec, rspec_for(tspec, path_terms(adspec), latency_s, 0.0)))


def bound_s(flowspec: FlowSpec, adspec: AdSpec) -> float | None:
    """The longest that a conforming message takes (RFC 2212), from the source broker to this one."""
    if flowspec.rspec is None:
        return None
    return delay_bound_s(flowspec.tspec, path_terms(adspec), flowspec.rspec.rate)
