"""`overlane plan reserve`: compute the reservation for a publisher and a subscriber."""

import math

import msgspec
from rich.console import Console
from rich.table import Table

from overlane.cli.plan.command import AsJson, ProblemFile, run_solver
from overlane.planning.reserve import PathTerms, Profile, ReservedSubscription, RSpec, Service, TokenBucket, TSpec
from overlane.planning.reserve import reserve as reservation_for


class BucketGiven(msgspec.Struct, forbid_unknown_fields=True):
    r: float
    b: float
    p: float | None = None


class ProfileGiven(msgspec.Struct, forbid_unknown_fields=True):
    size: float | None = None
    size_min: float | None = None
    size_max: float | None = None
    rate_avg: float | None = None
    rate_max: float | None = None
    period_s: float | None = None
    token_bucket: BucketGiven | None = None

    def profile(self) -> Profile:
        bucket = self.token_bucket
        return Profile(
            size=self.size,
            size_min=self.size_min,
            size_max=self.size_max,
            rate_avg=self.rate_avg,
            rate_max=self.rate_max,
            period_s=self.period_s,
            token_bucket=None if bucket is None else TokenBucket(bucket.r, bucket.b, bucket.p),
        )


class SubscriberGiven(ProfileGiven, forbid_unknown_fields=True):
    latency_s: float | None = None


class PathGiven(msgspec.Struct, forbid_unknown_fields=True):
    c_tot_bytes: float
    d_tot_s: float


class ReserveProblem(msgspec.Struct, forbid_unknown_fields=True):
    publisher: ProfileGiven | None
    subscriber: SubscriberGiven | None
    path: PathGiven | None = None
    slack_s: float = 0.0


class TSpecAnswer(msgspec.Struct):
    r: float
    b: float
    p: float | None  # None: not known, to be sent as infinite
    m: float
    M: float


class RSpecAnswer(msgspec.Struct):
    R: float
    S: float


class ReserveAnswer(msgspec.Struct):
    service: Service = msgspec.field(name="class")
    tspec: TSpecAnswer | None
    rspec: RSpecAnswer | None
    delay_bound_s: float | None


def reserve(problem: ProblemFile, as_json: AsJson = False) -> None:
    """Compute service class, traffic specification and rate of a reservation for a publisher and a subscriber."""
    run_solver(problem, ReserveProblem, _solve, _show, as_json)


def _solve(problem: ReserveProblem) -> ReserveAnswer:
    publisher, subscriber, path = problem.publisher, problem.subscriber, problem.path
    found = reservation_for(
        None if publisher is None else publisher.profile(),
        None if subscriber is None else ReservedSubscription(subscriber.profile(), subscriber.latency_s),
        None if path is None else PathTerms(path.c_tot_bytes, path.d_tot_s),
        problem.slack_s,
    )
    return ReserveAnswer(found.service, _tspec(found.tspec), _rspec(found.rspec), found.delay_bound_s)


def _tspec(tspec: TSpec | None) -> TSpecAnswer | None:
    if tspec is None:
        return None
    peak = tspec.peak if math.isfinite(tspec.peak) else None
    return TSpecAnswer(tspec.rate, tspec.bucket_bytes, peak, tspec.size_min_bytes, tspec.size_max_bytes)


def _rspec(rspec: RSpec | None) -> RSpecAnswer | None:
    return None if rspec is None else RSpecAnswer(rspec.rate, rspec.slack_s)


def _show(_: ReserveProblem, found: ReserveAnswer, console: Console) -> None:
    table = Table("", "", "", title=f"Reservation: {found.service}", show_header=False)
    if found.tspec is not None:
        peak = "not known" if found.tspec.p is None else f"{found.tspec.p:,.6g} bytes/s"
        table.add_row("r", f"{found.tspec.r:,.6g} bytes/s", "token bucket rate")
        table.add_row("b", f"{found.tspec.b:,.6g} bytes", "token bucket size")
        table.add_row("p", peak, "peak rate")
        table.add_row("m", f"{found.tspec.m:,.6g} bytes", "smallest notification")
        table.add_row("M", f"{found.tspec.M:,.6g} bytes", "largest notification")
    if found.rspec is not None:
        table.add_row("R", f"{found.rspec.R:,.6g} bytes/s", "rate to reserve")
        table.add_row("S", f"{found.rspec.S:,.6g} s", "slack")
    if found.delay_bound_s is not None:
        table.add_row("delay", f"{found.delay_bound_s:,.6g} s", "never longer, slack not included")
    if table.row_count:
        console.print(table)
    else:
        console.print(f"Reservation: {found.service}, nothing to reserve.")
