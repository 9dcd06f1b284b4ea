"""What clients may ask for: user properties of subscriptions, documents of publishers, and profiles that are kept."""

import pytest

from overlane.core.units import MS, SECOND
from overlane.planning.reserve import Profile, TokenBucket, TSpec
from overlane.pubsub.reservations.advertisement import Advertisement, read_advertisement
from overlane.pubsub.reservations.policing import Policer
from overlane.pubsub.reservations.request import BadReservation, ReservationRequest, link_tspec, read_request

SIZE, RATE = ("overlane-size", "1000"), ("overlane-rate", "100")


def test_nothing_is_asked_for_without_a_property_of_reservations() -> None:
    assert read_request([]) is None
    assert read_request([("overlane-deadline", "60ms"), ("colour", "red")]) is None


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ([SIZE, RATE], ReservationRequest(Profile(size=1000, rate_avg=100), None, "controlled-load")),
        (
            [("overlane-size", "200..1KiB"), ("overlane-rate", "100..200"), ("overlane-latency", "60ms")],
            ReservationRequest(Profile(size_min=200, size_max=1024, rate_avg=100, rate_max=200), 0.06, "guaranteed"),
        ),
        (
            [SIZE, ("overlane-period", "10ms"), ("overlane-latency", "1s"), ("overlane-class-min", "best-effort")],
            ReservationRequest(Profile(size=1000, period_s=0.01), 1.0, "best-effort"),
        ),
        (
            [SIZE, ("overlane-token-bucket", "5000 2000 9000"), ("overlane-style", "FF")],
            ReservationRequest(
                Profile(size=1000, token_bucket=TokenBucket(5000, 2000, 9000)), None, "controlled-load", "FF"
            ),
        ),
    ],
)
def test_user_properties_are_a_request(properties: list[tuple[str, str]], expected: ReservationRequest) -> None:
    found = read_request(properties)
    assert found == expected
    assert ReservationRequest.decode(expected.encode()) == expected


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ([("overlane-latency", "60ms")], "overlane-latency: got it without overlane-size and overlane-rate"),
        ([("overlane-class-min", "guaranteed")], "overlane-class-min: got it without overlane-size"),
        ([SIZE], "overlane-rate: got a size without a rate"),
        ([RATE], "overlane-size: got a rate without a size"),
        ([SIZE, RATE, ("overlane-period", "1s")], "overlane-period: got also rate_avg"),
        ([SIZE, ("overlane-rate", "200..100")], "overlane-rate: got 100; expected at least rate_avg, 200"),
        ([SIZE, ("overlane-token-bucket", "5000 10")], "overlane-token-bucket"),
        ([SIZE, ("overlane-token-bucket", "5000")], "expected two or three numbers"),
        ([("overlane-size", "no"), RATE], "overlane-size: got 'no'; expected one number"),
        ([("overlane-size", "1..2..3"), RATE], "overlane-size: got '1..2..3'"),
        ([SIZE, ("overlane-rate", "nan")], "overlane-rate: got 'nan'"),
        ([SIZE, ("overlane-rate", "1e300")], "overlane-rate: got '1e300'"),
        ([SIZE, RATE, ("overlane-latency", "-1s")], "overlane-latency: got '-1s'; expected a duration"),
        ([SIZE, RATE, ("overlane-class-min", "guaranteed")], "got guaranteed without overlane-latency"),
        ([SIZE, RATE, ("overlane-class-min", "good")], "expected best-effort, controlled-load or guaranteed"),
        ([SIZE, RATE, RATE], "overlane-rate: got it twice"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(properties: list[tuple[str, str]], told: str) -> None:
    with pytest.raises(BadReservation) as refused:
        read_request(properties)
    assert told in str(refused.value)


def test_a_document_is_an_advertisement() -> None:
    found = read_advertisement("plant/video", b'{"size": 1000, "period_s": 0.1, "type": "frame", "content": {"a": 1}}')
    assert found == Advertisement("plant/video", Profile(size=1000, period_s=0.1), "best-effort", "frame", '{"a":1}')
    wild = read_advertisement("any", b'{"filter": "plant/#", "size": 9, "rate_avg": 2, "excess": "drop"}')
    assert (wild.filter, wild.excess) == ("plant/#", "drop")


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (b"", "expected a profile"),
        (b"[" * 5000, "expected a profile"),
        (b'{"size": 1000}', "rate_avg: got a size without a rate"),
        (b'{"size": 1000, "rate_avg": 1, "speed": 2}', "unknown field `speed`"),
        (b'{"size": 1000, "rate_avg": 0}', "rate_avg: got 0"),
        (b'{"size": 1000, "rate_avg": 1, "filter": "$SYS/x"}', "expected one that does not begin with $"),
        (b'{"size": 1000, "rate_avg": 1, "filter": "a/#/b"}', "allowed only as the whole last level"),
        (b'{"size": 1, "rate_avg": 1, "filter": "' + b"x" * 300 + b'"}', "got more than 256 bytes"),
        (b" " * 20_000, "got a document of 20000 bytes"),
    ],
)
def test_a_document_that_makes_no_sense_is_refused_by_its_field(document: bytes, told: str) -> None:
    with pytest.raises(BadReservation) as refused:
        read_advertisement("plant/video", document)
    assert told in str(refused.value)


def test_links_see_a_message_with_its_headers() -> None:
    plain = link_tspec(Profile(size=1000, rate_avg=10, rate_max=20), "plant/video", "publisher")
    assert plain.size_max_bytes == 1107
    assert [plain.rate, plain.peak] == pytest.approx([11070, 22140])
    # A bucket is in bytes: the smallest messages have the most headers.
    bucket = Profile(size_min=100, size_max=1000, token_bucket=TokenBucket(10_000, 2000))
    assert link_tspec(bucket, "plant/video", "publisher").rate == pytest.approx(20_700)
    # A client is no clock.
    periodic = link_tspec(Profile(size=1000, period_s=0.1), "plant/video", "publisher")
    assert [periodic.rate, periodic.bucket_bytes] == pytest.approx([11070, 2 * 1107])


def test_who_keeps_to_the_profile_conforms_and_who_exceeds_it_does_not() -> None:
    policer = Policer(TSpec(1000, 2000, float("inf"), 100, 1000), 0)
    assert [policer.conforms(1000, 0) for _ in range(3)] == [True, True, False]
    assert policer.wait_ns(0) == SECOND
    assert not policer.conforms(1000, 999 * MS)
    assert policer.conforms(1000, SECOND)
    assert not policer.conforms(1001, 60 * SECOND)  # larger than the largest
    assert [policer.conforms(1, 60 * SECOND) for _ in range(21)].count(True) == 20  # the smallest counts as 100


def test_a_peak_spreads_a_burst() -> None:
    policer = Policer(TSpec(1000, 5000, 10_000, 100, 1000), 0)
    assert policer.conforms(1000, 0)
    assert not policer.conforms(1000, 50 * MS)
    assert policer.wait_ns(50 * MS) == 50 * MS
    assert policer.conforms(1000, 100 * MS)
