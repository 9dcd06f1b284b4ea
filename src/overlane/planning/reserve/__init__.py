"""Reservations: from the profiles of publishers and subscribers to the parameters of Integrated Services."""

from overlane.planning.reserve.profile import Profile, TokenBucket, tspec_of
from overlane.planning.reserve.rate import PathTerms, RSpec, delay_bound_s, rspec_for
from overlane.planning.reserve.service import Reservation, ReservedSubscription, Service, reserve
from overlane.planning.reserve.tspec import TSpec, least_of

__all__ = [
    "PathTerms",
    "Profile",
    "RSpec",
    "Reservation",
    "ReservedSubscription",
    "Service",
    "TSpec",
    "TokenBucket",
    "delay_bound_s",
    "least_of",
    "reserve",
    "rspec_for",
    "tspec_of",
]
