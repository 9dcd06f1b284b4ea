"""Quantities as people write them, and as the code counts them.

    "14ms" "1.5s" "2h" "-3ms"   ->  nanoseconds
    "100Mbit" "64kbit"          ->  bits per second
    "64KiB" "1.5MB" 4096        ->  bytes

The arithmetic is exact: a quantity that is not a whole number of the counted unit is rejected, never rounded.
"""

import re
from collections.abc import Mapping
from fractions import Fraction

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000

# Ten years. Keeps sums of a few durations far inside 64 bits.
DURATION_NS_MAX = 10 * 365 * 86_400 * SECOND

DURATION_UNITS = {
    "ns": 1,
    "us": US,
    "ms": MS,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3_600 * SECOND,
    "d": 86_400 * SECOND,
}
RATE_UNITS = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}
SIZE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}

_QUANTITY = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,18})?)([A-Za-z]+)")


def parse_duration(text: str) -> int:
    """Nanoseconds; ValueError when it is none or longer than ten years."""
    duration_ns = _parse(text, DURATION_UNITS)
    if abs(duration_ns) > DURATION_NS_MAX:
        raise ValueError("longer than ten years")
    return duration_ns


def parse_rate(text: str) -> int:
    """Bits a second; ValueError when it is none."""
    return _parse(text, RATE_UNITS)


def parse_size(text: str) -> int:
    """Bytes; ValueError when it is none."""
    return _parse(text, SIZE_UNITS)


def format_duration(duration_ns: int) -> str:
    """Exact, and as people would write it: 11.034ms, 1.5s, 90s, 2h."""
    for unit in ("s", "ms", "us"):
        whole, part = divmod(abs(duration_ns) * 1000, DURATION_UNITS[unit])
        if whole >= 1000 and part == 0 and whole % 1000:
            return f"{'-' if duration_ns < 0 else ''}{whole // 1000}.{whole % 1000:03}".rstrip("0") + unit
    return _format(duration_ns, DURATION_UNITS, zero="0s")


def format_rate(rate_bps: int) -> str:
    return _format(rate_bps, RATE_UNITS, zero="0bit")


def format_size(size_bytes: int) -> str:
    return _format(size_bytes, SIZE_UNITS, zero="0B")


def _parse(text: str, units: Mapping[str, int]) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError("not a number and a unit")
    number, unit = match.groups()
    if unit not in units:
        raise ValueError("not a known unit")
    quantity = Fraction(number) * units[unit]
    if quantity.denominator != 1:
        raise ValueError("finer than can be counted")
    return quantity.numerator


def _format(quantity: int, units: Mapping[str, int], zero: str) -> str:
    if quantity == 0:
        return zero
    unit = max((name for name in units if quantity % units[name] == 0), key=lambda name: units[name])
    return f"{quantity // units[unit]}{unit}"
