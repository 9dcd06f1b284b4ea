"""What a subscriber asks for, as user properties of a subscription.

    overlane-size          "1000", or "200..1000": bytes of payload
    overlane-rate          "100", or "100..200": messages per second, on average and at most
    overlane-period        "10ms": strictly periodic
    overlane-token-bucket  "125000 2000 250000": bytes per second, bytes, and the peak, which may be left out
    overlane-latency       "60ms": from the publisher's broker to this one
    overlane-class-min     "best-effort", "controlled-load" or "guaranteed": the least that is accepted
    overlane-style         "FF", "SE" or "WF": how several publishers of one topic share the reservation

Size and one of the kinds of rate ask for controlled load, with a latency too for guaranteed service (IndiQoS, Table 1
and Figure 1). Combinations that make no sense are refused by their names.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from overlane.errors import OverlaneError
from overlane.planning.problem import BadProblem
from overlane.planning.reserve import Profile, Service, TokenBucket, TSpec, tspec_of
from overlane.quantities import parse_duration, parse_size

PREFIX = "overlane-"
SIZE, RATE, PERIOD, BUCKET = "overlane-size", "overlane-rate", "overlane-period", "overlane-token-bucket"
LATENCY, CLASS_MIN, STYLE = "overlane-latency", "overlane-class-min", "overlane-style"
NAMES = frozenset((SIZE, RATE, PERIOD, BUCKET, LATENCY, CLASS_MIN, STYLE))

SERVICES: tuple[Service, ...] = ("best-effort", "controlled-load", "guaranteed")
"""The lesser first."""
STYLES = ("SE", "FF", "WF")
NUMBER_MAX = 1e12
_Word = TypeVar("_Word", bound=str)

HEADER_BYTES = 96
"""What a message has on a link beside its payload and its topic, at most."""

_FIELDS = {
    "subscriber.size_min": SIZE,
    "subscriber.size_max": SIZE,
    "subscriber.size": SIZE,
    "subscriber.rate_avg": RATE,
    "subscriber.rate_max": RATE,
    "subscriber.period_s": PERIOD,
    "subscriber.token_bucket": BUCKET,
}


class BadReservation(OverlaneError, ValueError):
    """A reservation that a client asks for and that makes no sense."""

    error_code = "OVL-140"


@dataclass(frozen=True, slots=True)
class ReservationRequest:
    profile: Profile = field(default_factory=Profile)
    latency_s: float | None = None
    class_min: Service = "guaranteed"
    style: str = "SE"

    @property
    def service(self) -> Service:
        """The class that it asks for."""
        return "controlled-load" if self.latency_s is None else "guaranteed"

    def encode(self) -> str:
        """For the record of the subscription."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def decode(text: str) -> "ReservationRequest":
        return msgspec.json.decode(text, type=ReservationRequest)


def read_request(user_properties: Iterable[tuple[str, str]]) -> ReservationRequest | None:
    """None if nothing is asked for; BadReservation."""
    given: dict[str, str] = {}
    for name, value in user_properties:
        if name in NAMES:
            if name in given:
                raise BadReservation(f"{name}: got it twice; expected once")
            given[name] = value
    if not given:
        return None
    size_min, size_max = _range(given, SIZE, _size)
    rate_avg, rate_max = _range(given, RATE, _number)
    latency_s = _duration_s(given, LATENCY)
    profile = Profile(
        size=size_min if size_max is None else None,
        size_min=size_min if size_max is not None else None,
        size_max=size_max,
        rate_avg=rate_avg,
        rate_max=rate_max,
        period_s=_duration_s(given, PERIOD),
        token_bucket=_bucket(given),
    )
    if profile.is_empty():
        alone = " and ".join(sorted(given))
        raise BadReservation(f"{alone}: got it without {SIZE} and {RATE}; expected both, or none of them")
    _checked(profile)
    asked: Service = "controlled-load" if latency_s is None else "guaranteed"
    class_min = _one_of(given, CLASS_MIN, SERVICES, asked)
    if SERVICES.index(class_min) > SERVICES.index(asked):
        raise BadReservation(f"{CLASS_MIN}: got {class_min} without {LATENCY}; expected at most {asked}")
    return ReservationRequest(profile, latency_s, class_min, _one_of(given, STYLE, STYLES, "SE"))


def link_tspec(profile: Profile, topic_filter: str, whose: str) -> TSpec:
    """The traffic of a profile as links see it, with what brokers add to each message. BadProblem.

    A client is no clock: a periodic flow may have one message more at once than its period says.
    """
    tspec = tspec_of(profile, whose)
    extra = HEADER_BYTES + len(topic_filter.encode())
    smallest = tspec.size_min_bytes if profile.token_bucket is not None else tspec.size_max_bytes
    factor = 1 + extra / smallest
    size_max = tspec.size_max_bytes + extra
    if profile.period_s is not None:
        return TSpec(tspec.rate * factor, 2 * size_max, float("inf"), tspec.size_min_bytes + extra, size_max)
    bucket_bytes = max(tspec.bucket_bytes * factor, size_max)
    return TSpec(tspec.rate * factor, bucket_bytes, tspec.peak * factor, tspec.size_min_bytes + extra, size_max)


def _checked(profile: Profile) -> None:
    try:
        tspec_of(profile, "subscriber")
    except BadProblem as bad:
        told = str(bad)
        for found, name in _FIELDS.items():
            if told.startswith((f"{found}:", f"{found}.")):
                told = name + told.removeprefix(found)
        raise BadReservation(told) from None


def _range(given: dict[str, str], name: str, read: Callable[[str], float]) -> tuple[float | None, float | None]:
    text = given.get(name)
    if text is None:
        return None, None
    parts = text.split("..")
    try:
        if not 1 <= len(parts) <= 2:
            raise ValueError("too many numbers")
        numbers = [read(part.strip()) for part in parts]
    except ValueError:
        raise BadReservation(f"{name}: got {text[:40]!a}; expected one number above 0, or two as 100..200") from None
    return numbers[0], numbers[1] if len(numbers) > 1 else None


def _number(text: str) -> float:
    value = float(text)
    if not 0 < value <= NUMBER_MAX:
        raise ValueError("out of range")
    return value


def _size(text: str) -> float:
    return _number(text) if text[:1].isdigit() and text[-1:].isdigit() else _number(str(parse_size(text)))


def _duration_s(given: dict[str, str], name: str) -> float | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        duration_ns = parse_duration(text)
    except ValueError:
        duration_ns = 0
    if duration_ns <= 0:
        raise BadReservation(f"{name}: got {text[:40]!a}; expected a duration such as 60ms")
    return duration_ns / 1e9


def _bucket(given: dict[str, str]) -> TokenBucket | None:
    text = given.get(BUCKET)
    if text is None:
        return None
    try:
        numbers = [_number(part) for part in text.replace(",", " ").split()]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3):
        raise BadReservation(f"{BUCKET}: got {text[:40]!a}; expected two or three numbers above 0: r, b and p in bytes")
    return TokenBucket(*numbers)


def _one_of(given: dict[str, str], name: str, allowed: Sequence[_Word], default: _Word) -> _Word:
    text = given.get(name)
    if text is None:
        return default
    found = next((one for one in allowed if one == text), None)
    if found is None:
        raise BadReservation(f"{name}: got {text[:40]!a}; expected {', '.join(allowed[:-1])} or {allowed[-1]}")
    return found
