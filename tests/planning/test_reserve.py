"""Reservations: the classes, what makes no sense, and rates checked by evaluating the delay they allow."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.planning.problem import BadProblem, NoSolution
from overlane.planning.reserve import (
    PathTerms,
    Profile,
    Reservation,
    ReservedSubscription,
    TokenBucket,
    TSpec,
    delay_bound_s,
    least_of,
    reserve,
    rspec_for,
    tspec_of,
)

PERIODIC = Profile(size=1000, period_s=0.1)
STEADY = TSpec(10_000, 1000, 10_000, 1000, 1000)
PATH = PathTerms(c_tot_bytes=3000, d_tot_s=0.02)


def test_the_classes_follow_what_publisher_and_subscriber_say() -> None:
    asking, in_time = ReservedSubscription(PERIODIC), ReservedSubscription(PERIODIC, latency_s=0.5)
    classes = {
        "nothing said": reserve(None, None, PATH).service,
        "only published": reserve(PERIODIC, None, PATH).service,
        "both": reserve(PERIODIC, asking, PATH).service,
        "both, in time": reserve(PERIODIC, in_time, PATH).service,
    }
    assert classes == {
        "nothing said": "best-effort",
        "only published": "best-effort",
        "both": "controlled-load",
        "both, in time": "guaranteed",
    }


def test_only_a_latency_makes_a_rate_and_only_a_profile_makes_a_tspec() -> None:
    assert reserve(None, None, None) == Reservation("best-effort", None, None, None)
    assert reserve(Profile(), ReservedSubscription(), None) == Reservation("best-effort", None, None, None)
    assert reserve(PERIODIC, None, None) == Reservation("best-effort", STEADY, None, None)
    assert reserve(PERIODIC, ReservedSubscription(PERIODIC), None) == Reservation("controlled-load", STEADY, None, None)


@pytest.mark.parametrize(
    ("publisher", "subscriber", "found"),
    [
        (None, ReservedSubscription(PERIODIC), "subscriber QoS without publisher QoS"),
        (None, ReservedSubscription(PERIODIC, 0.5), "subscriber QoS without publisher QoS (and a latency)"),
        (None, ReservedSubscription(latency_s=0.5), "latency without size and rate"),
        (PERIODIC, ReservedSubscription(latency_s=0.5), "latency without size and rate"),
        (PERIODIC, ReservedSubscription(Profile(size=999, period_s=1)), "at most 999 bytes"),
    ],
)
def test_combinations_that_make_no_sense_are_refused_by_name(
    publisher: Profile | None, subscriber: ReservedSubscription, found: str
) -> None:
    with pytest.raises(BadProblem) as refused:
        reserve(publisher, subscriber, PATH)
    assert refused.value.found == found


@pytest.mark.parametrize(
    ("profile", "tspec"),
    [
        (PERIODIC, STEADY),
        (Profile(size_min=100, size_max=500, period_s=0.5), TSpec(1000, 500, 1000, 100, 500)),
        (Profile(size=100, rate_avg=20, rate_max=50), TSpec(2000, 3100, 5000, 100, 100)),
        (Profile(size=100, rate_avg=20), TSpec(2000, 2000, math.inf, 100, 100)),
        (Profile(size=100, rate_avg=0.1), TSpec(10, 100, math.inf, 100, 100)),
        (Profile(size_min=1, size_max=9, token_bucket=TokenBucket(5, 20, 7)), TSpec(5, 20, 7, 1, 9)),
        (Profile(size=9, token_bucket=TokenBucket(5, 20)), TSpec(5, 20, math.inf, 9, 9)),
    ],
)
def test_profiles_become_traffic_with_every_notification_as_large_as_the_largest(
    profile: Profile, tspec: TSpec
) -> None:
    assert tspec_of(profile, "publisher") == tspec


@pytest.mark.parametrize(
    ("profile", "field"),
    [
        (Profile(size=0, period_s=1), "size"),
        (Profile(size=10, period_s=-1), "period_s"),
        (Profile(size=10, rate_avg=math.inf), "rate_avg"),
        (Profile(size=10), "rate_avg"),
        (Profile(period_s=1), "size"),
        (Profile(size_min=1, period_s=1), "size_max"),
        (Profile(size_max=1, period_s=1), "size_min"),
        (Profile(size_min=2, size_max=1, period_s=1), "size_min"),
        (Profile(size=1, size_max=1, period_s=1), "size"),
        (Profile(size=1, rate_max=1), "rate_max"),
        (Profile(size=1, rate_avg=2, rate_max=1), "rate_max"),
        (Profile(size=1, rate_avg=2, period_s=1), "period_s"),
        (Profile(size=1, period_s=1, token_bucket=TokenBucket(1, 1, 1)), "token_bucket"),
        (Profile(size=1, token_bucket=TokenBucket(2, 1, 1)), "token_bucket.p"),
        (Profile(size=2, token_bucket=TokenBucket(1, 1, 1)), "token_bucket.b"),
        (Profile(size=2, token_bucket=TokenBucket(-1, 3, 1)), "token_bucket.r"),
    ],
)
def test_a_bad_profile_is_refused_with_its_field(profile: Profile, field: str) -> None:
    with pytest.raises(BadProblem) as refused:
        tspec_of(profile, "publisher")
    assert refused.value.field_name == f"publisher.{field}"


def test_the_lesser_traffic_is_reserved_for() -> None:
    more, less = TSpec(200, 400, 600, 10, 100), TSpec(100, 300, 500, 20, 90)
    assert least_of(more, less) == least_of(less, more) == less
    crossed = replace(less, peak=700)
    assert least_of(more, crossed) == TSpec(100, 400, 600, 10, 90)


@st.composite
def flows(draw: st.DrawFn) -> TSpec:
    rate = draw(st.floats(1, 1e7))
    size_max = draw(st.floats(1, 1e4))
    peak = draw(st.one_of(st.just(math.inf), st.just(rate), st.floats(1.001, 1000).map(lambda times: rate * times)))
    return TSpec(rate, size_max * draw(st.floats(1, 1000)), peak, size_max, size_max)


paths = st.builds(PathTerms, st.floats(0, 1e5), st.floats(0, 1))


def worst_delay_s(tspec: TSpec, path: PathTerms, rate: float) -> float:
    """The delay behind a flow that always sends as much as it may: how far the served line is behind the arrivals.

    Arrivals are the lesser of M + p t and b + r t; their distance from the line `rate` t is greatest where they bend,
    or at the start. C_tot adds what its bytes take at the rate, D_tot adds itself.
    """
    behind_bytes = tspec.size_max_bytes
    if math.isinf(tspec.peak):
        behind_bytes = tspec.bucket_bytes
    elif tspec.peak > tspec.rate:
        bend_s = (tspec.bucket_bytes - tspec.size_max_bytes) / (tspec.peak - tspec.rate)
        behind_bytes = max(behind_bytes, tspec.bucket_bytes + tspec.rate * bend_s - rate * bend_s)
    return (behind_bytes + path.c_tot_bytes) / rate + path.d_tot_s


@given(flows(), paths, st.floats(1, 1e4))
def test_the_delay_bound_is_that_of_the_greediest_flow(tspec: TSpec, path: PathTerms, times: float) -> None:
    rate = tspec.rate * times
    assert delay_bound_s(tspec, path, rate) == pytest.approx(worst_delay_s(tspec, path, rate), rel=1e-6)


@given(flows(), paths, st.floats(1e-4, 100), st.floats(0, 1))
def test_the_rate_keeps_the_latency_and_a_thousandth_less_does_not(
    tspec: TSpec, path: PathTerms, spare_s: float, slack_s: float
) -> None:
    latency_s = path.d_tot_s + slack_s + spare_s
    rspec = rspec_for(tspec, path, latency_s, slack_s)
    assert rspec.slack_s == slack_s
    assert rspec.rate >= tspec.rate
    no_path = replace(path, d_tot_s=0)  # what D_tot takes is known; without it the rest is compared without rounding
    assert worst_delay_s(tspec, no_path, rspec.rate) <= spare_s * (1 + 1e-6)
    if rspec.rate > tspec.rate:
        assert worst_delay_s(tspec, no_path, 0.999 * rspec.rate) > spare_s


def test_both_cases_of_the_rfc_by_hand() -> None:
    tspec = TSpec(50_000, 20_000, 200_000, 200, 1000)
    burst_s = 19_000 / 150_000
    below_peak = rspec_for(tspec, PATH, 0.15, 0.01).rate
    assert below_peak == pytest.approx((200_000 * burst_s + 4000) / (0.12 + burst_s))
    assert below_peak < 200_000
    assert rspec_for(tspec, PATH, 0.04, 0.01).rate == pytest.approx(4000 / 0.01)  # 400,000, above the peak
    assert rspec_for(tspec, PATH, 10, 0.01).rate == 50_000  # never below r


@pytest.mark.parametrize("latency_s", [0.029, 0.03])
def test_a_latency_out_of_reach_is_refused_with_what_could_be_had(latency_s: float) -> None:
    with pytest.raises(NoSolution) as none:
        rspec_for(STEADY, PATH, latency_s, 0.01)
    assert none.value.nearest == {
        "latency_s": 0.03,
        "latency_at_r_s": pytest.approx(0.43),
        "latency_at_p_s": pytest.approx(0.43),
    }
    assert rspec_for(STEADY, PATH, 0.0301, 0.01).rate == pytest.approx(4000 / 0.0001)


@pytest.mark.parametrize(
    ("path", "slack_s", "field"),
    [
        (None, 0.0, "path"),
        (PathTerms(-1, 0), 0.0, "path.c_tot_bytes"),
        (PathTerms(0, math.nan), 0.0, "path.d_tot_s"),
        (PATH, -0.1, "slack_s"),
    ],
)
def test_a_bad_path_is_refused_with_its_field(path: PathTerms | None, slack_s: float, field: str) -> None:
    with pytest.raises(BadProblem) as refused:
        reserve(PERIODIC, ReservedSubscription(PERIODIC, 0.5), path, slack_s)
    assert refused.value.field_name == field
