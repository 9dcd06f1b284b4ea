"""The token buckets that traffic would have fitted."""

from hypothesis import given
from hypothesis import strategies as st

from overlane.core.units import MS, SECOND
from overlane.planning.reserve import TSpec
from overlane.pubsub.reservations.policing import Policer
from overlane.pubsub.reservations.profile_meter import FACTORS, ProfileMeter


def test_a_periodic_flow_needs_one_message_at_its_rate_and_grows_beyond_at_less() -> None:
    meter = ProfileMeter(10_000, 0)
    for number in range(200):
        meter.note(100, number * 10 * MS)
    depths = dict(zip(FACTORS, meter.take_depths(), strict=True))
    assert depths[1.0] == depths[2.0] == depths[4.0] == 100
    assert depths[0.5] == 100 + 199 * 50
    assert (meter.messages, meter.payload_bytes, meter.size_max) == (200, 20_000, 100)


def test_a_backlog_goes_on_into_the_next_interval() -> None:
    meter = ProfileMeter(1_000, 0)
    meter.note(5_000, 0)
    meter.take_depths()
    meter.note(100, SECOND)
    assert dict(zip(FACTORS, meter.take_depths(), strict=True))[1.0] == 4_100


def test_what_was_published_before_another_rate_was_advertised_does_not_count() -> None:
    meter = ProfileMeter(1_000, 0)
    meter.note(5_000, 0)
    meter.change(2_000)
    meter.note(100, 1)
    assert set(meter.take_depths()) == {100.0}
    assert meter.rates == tuple(2_000 * factor for factor in FACTORS)


@given(st.lists(st.tuples(st.integers(1, 2_000), st.integers(0, 200 * MS)), min_size=1, max_size=60))
def test_a_bucket_as_deep_as_was_measured_passes_everything_and_one_less_deep_does_not(
    messages: list[tuple[int, int]],
) -> None:
    meter, now, sent = ProfileMeter(5_000, 0), 0, []
    for size, pause_ns in messages:
        now += pause_ns
        sent.append((size, now))
        meter.note(size, now)
    for rate, depth in zip(meter.rates, meter.take_depths(), strict=True):
        passed = Policer(TSpec(rate, depth + 0.01, float("inf"), 1, 2_000), 0)
        assert all(passed.conforms(size, at) for size, at in sent)
        refused = Policer(TSpec(rate, depth - 1, float("inf"), 1, 2_000), 0)
        assert not all(refused.conforms(size, at) for size, at in sent)
