"""Numbers in as few bytes as they need: seven bits in each, the lowest first, the top bit set in all but the last.

For frames that every hop of a path passes on, where most numbers are small. Frames that every parcel needs have fixed
fields, which are quicker to read.
"""

from overlane.errors import ProtocolViolation

MORE = 0x80
BITS = 0x7F
NUMBER_MAX = (1 << 63) - 1


def packed(numbers: tuple[int, ...]) -> bytes:
    """None of them below zero."""
    out = bytearray()
    for number in numbers:
        while number > BITS:
            out.append(number & BITS | MORE)
            number >>= 7
        out.append(number)
    return bytes(out)


def unpacked(data: "memoryview", limits: tuple[int, ...], what: str) -> list[int]:
    """As many numbers as there are limits, none beyond its own; ProtocolViolation if there are others."""
    numbers, rest = first_of(data, limits, what)
    if len(rest):
        raise ProtocolViolation(f"{what} of the wrong size")
    return numbers


def first_of(data: "memoryview", limits: tuple[int, ...], what: str) -> "tuple[list[int], memoryview]":
    """As `unpacked`, and the bytes behind them."""
    numbers: list[int] = []
    position, end = 0, len(data)
    for limit in limits:
        number = shift = 0
        while True:
            if position == end or number > limit:
                raise ProtocolViolation(f"{what} of the wrong size")
            byte = data[position]
            position += 1
            number |= (byte & BITS) << shift
            if byte <= BITS:
                break
            shift += 7
            if limit >> shift == 0:
                raise ProtocolViolation(f"{what} of the wrong size")
        if number > limit:
            raise ProtocolViolation(f"{what} with a number that nobody gives")
        numbers.append(number)
    return numbers, data[position:]


def all_in(data: bytes, what: str) -> list[int]:
    """All numbers; ProtocolViolation if the last one is not complete, or one is above NUMBER_MAX."""
    if data.isascii():
        return list(data)
    numbers: list[int] = []
    number = shift = 0
    for byte in data:
        number |= (byte & BITS) << shift
        if byte > BITS:
            shift += 7
            if shift > 63:
                raise ProtocolViolation(f"{what} with a number that nobody gives")
            continue
        if number > NUMBER_MAX:
            raise ProtocolViolation(f"{what} with a number that nobody gives")
        numbers.append(number)
        number = shift = 0
    if shift:
        raise ProtocolViolation(f"{what} of the wrong size")
    return numbers
