"""The objects of Integrated Services in RSVP, byte for byte as in RFC 2210, section 3.

All are 32-bit words: a message header, and for each service a header and its parameters, each with a header.

    message    version u4 (0) | 0 u12 | length u16              lengths count words, without the header's own
    service    number u8 | break bit u1, 0 u7 | length u16
    parameter  number u8 | flags u8 | length u16

    SENDER_TSPEC  service 1: token bucket (127): r, b, p as floats, m, M as integers
    FLOWSPEC      controlled load, service 5: token bucket (127)
                  guaranteed, service 2: token bucket (127), RSpec (130): R as a float, S in microseconds
    ADSPEC        service 1: hops (4), path bandwidth (6), least latency (8), MTU (10)
                  service 2: C_tot (133), D_tot (134), C_sum (135), D_sum (136)
                  service 5: nothing

Amounts that do not fit a float of 32 bits are rounded to the side that promises less and demands more. An unknown peak
is infinite, which the format has a value for.
"""

import math
import struct
from dataclasses import dataclass

from overlane.planning.reserve import RSpec, TSpec
from overlane.reservation.rsvp.objects import BadMessage, ClassNum, framed

GENERAL, GUARANTEED, CONTROLLED_LOAD = 1, 2, 5
U32_MAX = (1 << 32) - 1
INDETERMINATE = U32_MAX
"""A latency or an error term that is not known, or too large."""
RATE_MAX = 40e12
BUCKET_MAX = 250e9
"""The largest values of RFC 2215, section 3.7."""

_WORD = struct.Struct("!I")
_FLOAT = struct.Struct("!f")
_SHORT = struct.Struct("!HH")
_NUMBERED = struct.Struct("!BBH")
_BUCKET = struct.Struct("!fffII")
_RSPEC = struct.Struct("!fI")
_BREAK = 0x80


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """A request of a receiver: controlled load, or with an RSpec guaranteed service."""

    tspec: TSpec
    rspec: RSpec | None = None

    @property
    def rate(self) -> float:
        """What a link has to set aside for it, in bytes per second."""
        return self.tspec.rate if self.rspec is None else self.rspec.rate


@dataclass(frozen=True, slots=True)
class AdSpec:
    """What the path can do, as far as the message has come."""

    hops: int
    bandwidth: float
    """Bytes per second."""
    latency_us: int
    mtu: int
    c_tot: int = 0
    """Bytes."""
    d_tot_us: int = 0
    c_sum: int = 0
    """Since the last broker that shaped the traffic."""
    d_sum_us: int = 0
    has_break: bool = False
    """Some hop cannot reserve anything."""
    guaranteed_break: bool = False
    controlled_load_break: bool = False


def float_up(value: float) -> float:
    """The smallest float of 32 bits that is no less."""
    if math.isinf(value):
        return value
    found = float(_FLOAT.unpack(_FLOAT.pack(value))[0])
    if found >= value:
        return found
    return float(_FLOAT.unpack(_WORD.pack(_WORD.unpack(_FLOAT.pack(found))[0] + 1))[0])


def float_down(value: float) -> float:
    """The largest float of 32 bits that is no more."""
    found = float_up(value)
    if found == value or not found:
        return found
    return float(_FLOAT.unpack(_WORD.pack(_WORD.unpack(_FLOAT.pack(found))[0] - 1))[0])


def saturated(amount: float) -> int:
    """An amount as an integer that is no less, or INDETERMINATE."""
    return INDETERMINATE if amount >= INDETERMINATE else math.ceil(amount)


# Writing


def _parameter(number: int, body: bytes) -> bytes:
    return _NUMBERED.pack(number, 0, len(body) // 4) + body


def _service(number: int, body: bytes, has_break: bool = False) -> bytes:
    return _NUMBERED.pack(number, _BREAK if has_break else 0, len(body) // 4) + body


def _message(class_num: ClassNum, body: bytes) -> bytes:
    return framed(class_num, 2, _SHORT.pack(0, len(body) // 4) + body)


def _bucket(tspec: TSpec) -> bytes:
    return _parameter(
        127,
        _BUCKET.pack(
            float_up(tspec.rate),
            float_up(tspec.bucket_bytes),
            float_up(tspec.peak),
            math.floor(tspec.size_min_bytes),
            math.ceil(tspec.size_max_bytes),
        ),
    )


def write_tspec(tspec: TSpec) -> bytes:
    return _message(ClassNum.SENDER_TSPEC, _service(GENERAL, _bucket(tspec)))


def write_flowspec(flowspec: FlowSpec) -> bytes:
    body = _bucket(flowspec.tspec)
    if flowspec.rspec is None:
        return _message(ClassNum.FLOWSPEC, _service(CONTROLLED_LOAD, body))
    slack_us = min(U32_MAX, math.floor(flowspec.rspec.slack_s * 1e6 + 1e-6))
    body += _parameter(130, _RSPEC.pack(float_up(flowspec.rspec.rate), slack_us))
    return _message(ClassNum.FLOWSPEC, _service(GUARANTEED, body))


def write_adspec(one: AdSpec) -> bytes:
    general = [
        _parameter(4, _WORD.pack(min(one.hops, U32_MAX))),
        _parameter(6, _FLOAT.pack(float_down(one.bandwidth))),
        _parameter(8, _WORD.pack(one.latency_us)),
        _parameter(10, _WORD.pack(one.mtu)),
    ]
    terms = zip((133, 134, 135, 136), (one.c_tot, one.d_tot_us, one.c_sum, one.d_sum_us), strict=True)
    guaranteed = [_parameter(number, _WORD.pack(value)) for number, value in terms]
    return _message(
        ClassNum.ADSPEC,
        _service(GENERAL, b"".join(general), one.has_break)
        + _service(GUARANTEED, b"".join(guaranteed), one.guaranteed_break)
        + _service(CONTROLLED_LOAD, b"", one.controlled_load_break),
    )


# Reading


def _services(c_type: int, body: bytes, what: str) -> dict[int, tuple[bool, dict[int, bytes]]]:
    """By number of the service: its break bit, and its parameters by their numbers."""
    if c_type != 2:
        raise BadMessage(f"{what}: unknown C-type {c_type}")
    if len(body) < 4 or len(body) % 4:
        raise BadMessage(f"{what}: truncated")
    version, words = _SHORT.unpack_from(body)
    if version >> 12 or 4 + 4 * words != len(body):
        raise BadMessage(f"{what}: unknown version or wrong length")
    found: dict[int, tuple[bool, dict[int, bytes]]] = {}
    for number, flags, content in _numbered(body[4:], what):
        if number in found:
            raise BadMessage(f"{what}: service {number} twice")
        parameters: dict[int, bytes] = {}
        for name, _, value in _numbered(content, what):
            if name in parameters:
                raise BadMessage(f"{what}: parameter {name} twice")
            parameters[name] = value
        found[number] = bool(flags & _BREAK), parameters
    return found


def _numbered(body: bytes, what: str) -> list[tuple[int, int, bytes]]:
    found = []
    at = 0
    while at < len(body):
        number, flags, words = _NUMBERED.unpack_from(body, at)
        after = at + 4 + 4 * words
        if after > len(body):
            raise BadMessage(f"{what}: truncated")
        found.append((number, flags, body[at + 4 : after]))
        at = after
    return found


def _read_bucket(parameters: dict[int, bytes], what: str) -> TSpec:
    body = parameters.get(127, b"")
    if len(body) != _BUCKET.size:
        raise BadMessage(f"{what}: expected a token bucket")
    rate, bucket, peak, smallest, largest = _BUCKET.unpack(body)
    # Comparisons with NaN are false, so that it is refused too.
    if not (1 <= rate <= RATE_MAX and rate <= peak and (math.isinf(peak) or peak <= RATE_MAX)):
        raise BadMessage(f"{what}: a rate out of range")
    if not (0 < smallest <= largest <= bucket <= BUCKET_MAX):
        raise BadMessage(f"{what}: a size out of range")
    return TSpec(rate, bucket, peak, smallest, largest)


def read_tspec(c_type: int, body: bytes) -> TSpec:
    services = _services(c_type, body, "SENDER_TSPEC")
    if services.keys() != {GENERAL}:
        raise BadMessage("SENDER_TSPEC: expected service 1 alone")
    return _read_bucket(services[GENERAL][1], "SENDER_TSPEC")


def read_flowspec(c_type: int, body: bytes) -> FlowSpec:
    services = _services(c_type, body, "FLOWSPEC")
    if services.keys() == {CONTROLLED_LOAD}:
        return FlowSpec(_read_bucket(services[CONTROLLED_LOAD][1], "FLOWSPEC"))
    if services.keys() != {GUARANTEED}:
        raise BadMessage("FLOWSPEC: expected service 2 or 5 alone")
    parameters = services[GUARANTEED][1]
    tspec = _read_bucket(parameters, "FLOWSPEC")
    requested = parameters.get(130, b"")
    if len(requested) != _RSPEC.size:
        raise BadMessage("FLOWSPEC: expected an RSpec")
    rate, slack_us = _RSPEC.unpack(requested)
    if not tspec.rate <= rate <= RATE_MAX:
        raise BadMessage("FLOWSPEC: R out of range")
    return FlowSpec(tspec, RSpec(rate, slack_us / 1e6))


def read_adspec(c_type: int, body: bytes) -> AdSpec:
    services = _services(c_type, body, "ADSPEC")
    if GENERAL not in services:
        raise BadMessage("ADSPEC: expected service 1")
    has_break, general = services[GENERAL]
    # A service that is left out is one that the path does not offer.
    guaranteed_break, guaranteed = services.get(GUARANTEED, (True, {}))
    (bandwidth,) = _FLOAT.unpack(_four(general, 6))
    if not bandwidth >= 0:
        raise BadMessage("ADSPEC: a bandwidth out of range")
    hops, latency_us, mtu = (_WORD.unpack(_four(general, number))[0] for number in (4, 8, 10))
    c_tot, d_tot_us, c_sum, d_sum_us = (
        _WORD.unpack(_four(guaranteed, number) if guaranteed else bytes(4))[0] for number in (133, 134, 135, 136)
    )
    return AdSpec(
        hops,
        bandwidth,
        latency_us,
        mtu,
        c_tot,
        d_tot_us,
        c_sum,
        d_sum_us,
        has_break,
        guaranteed_break,
        controlled_load_break=services.get(CONTROLLED_LOAD, (True, {}))[0],
    )


def _four(parameters: dict[int, bytes], number: int) -> bytes:
    body = parameters.get(number, b"")
    if len(body) != 4:
        raise BadMessage(f"ADSPEC: expected parameter {number} with one word")
    return body
