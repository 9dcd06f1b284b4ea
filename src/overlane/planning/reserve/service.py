"""The class of service for a publisher and a subscriber (IndiQoS, Figure 1).

    publisher        subscriber          class
    -                -                   best effort
    size and rate    -                   best effort: no more was requested
    size and rate    size and rate       controlled load
    size and rate    these and latency   guaranteed
    -                size and rate       rejected, with latency or without: the traffic is unknown
    anything         latency alone       rejected: a latency can only be guaranteed for traffic that is described

The reservation is for the traffic that both describe: a subscriber may request less than is published, and gets the
rest as best effort; requesting more reserves no more than is published.
"""

from dataclasses import dataclass, field
from typing import Literal

from overlane.planning.problem import BadProblem
from overlane.planning.reserve.profile import Profile, tspec_of
from overlane.planning.reserve.rate import PathTerms, RSpec, delay_bound_s, not_negative, rspec_for
from overlane.planning.reserve.tspec import TSpec, least_of

Service = Literal["best-effort", "controlled-load", "guaranteed"]


@dataclass(frozen=True, slots=True)
class ReservedSubscription:
    """A subscriber's profile, and how late a notification may be."""

    profile: Profile = field(default_factory=Profile)
    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """What to ask the network for: the class, the traffic if anyone described it, the rate if a latency is to hold."""

    service: Service
    tspec: TSpec | None
    rspec: RSpec | None
    delay_bound_s: float | None  # with that rate, slack not included


def reserve(
    publisher: Profile | None, subscriber: ReservedSubscription | None, path: PathTerms | None, slack_s: float = 0.0
) -> Reservation:
    """The reservation for one publisher and one subscriber; an empty profile is one that says nothing.

    Only a latency needs the path; without one it may be unknown.
    """
    not_negative("slack_s", slack_s)
    published = None if publisher is None or publisher.is_empty() else tspec_of(publisher, "publisher")
    asking = ReservedSubscription() if subscriber is None else subscriber
    if asking.profile.is_empty():
        if asking.latency_s is not None:
            raise BadProblem("subscriber.latency_s", "latency without size and rate", "latency with size and rate")
        return Reservation("best-effort", published, None, None)
    asked = tspec_of(asking.profile, "subscriber")
    if published is None:
        raise BadProblem(
            "subscriber",
            "subscriber QoS without publisher QoS" + (" (and a latency)" if asking.latency_s is not None else ""),
            "size and rate only where the publisher gives them too",
        )
    tspec = _shared(published, asked)
    if asking.latency_s is None:
        return Reservation("controlled-load", tspec, None, None)
    if path is None:
        raise BadProblem("path", "a latency without a path", "c_tot_bytes and d_tot_s of the path")
    rspec = rspec_for(tspec, path, asking.latency_s, slack_s)
    return Reservation("guaranteed", tspec, rspec, delay_bound_s(tspec, path, rspec.rate))


def _shared(published: TSpec, asked: TSpec) -> TSpec:
    if asked.size_max_bytes < published.size_min_bytes:
        raise BadProblem(
            "subscriber.size",
            f"at most {asked.size_max_bytes:g} bytes",
            f"at least the publisher's smallest notification, {published.size_min_bytes:g}",
        )
    return least_of(published, asked)
