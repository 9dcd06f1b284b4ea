"""Reading values: bytes to Python values (part 1, section 1.2).

    constructor u8 | ...     0x00 described: descriptor value | constructor ...
                             0x4. 0x5. 0x6. 0x7. 0x8. 0x9.   a fixed width of 0, 1, 2, 4, 8, 16 bytes
                             0xA. 0xB.                       size u8, u32 | bytes
                             0xC. 0xD.                       size u8, u32 | count u8, u32 | items: list, map
                             0xE. 0xF.                       size u8, u32 | count u8, u32 | constructor | items: array

Sizes and counts are checked against the bytes that are there before anything is allocated, and the depth of nested
values is limited: the largest value is no larger than a small multiple of its bytes.
"""

from collections.abc import Callable
from struct import Struct

from overlane.amqp.codec.malformed import Malformed
from overlane.amqp.codec.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuid,
)

DEPTH_MAX = 16
"""Of values in values."""
EMPTY_ITEMS_MAX = 4_096
"""Items of an array whose items take no bytes."""

DESCRIBED = 0x00

_u16 = Struct("!H").unpack_from
_u32 = Struct("!I").unpack_from
_u64 = Struct("!Q").unpack_from
_i8 = Struct("!b").unpack_from
_i16 = Struct("!h").unpack_from
_i32 = Struct("!i").unpack_from
_i64 = Struct("!q").unpack_from
_f32 = Struct("!f").unpack_from
_f64 = Struct("!d").unpack_from


def decode(data: bytes, at: int = 0, depth: int = 0) -> tuple[object, int]:
    """The value that begins there, and the position behind it; Malformed."""
    if at >= len(data):
        raise Malformed("a value ends too early")
    code = data[at]
    if code == DESCRIBED:
        return _described(data, at, depth)
    return _by_code(code, data, at + 1, depth)


def decode_all(data: bytes) -> object:
    """The one value that these bytes are."""
    value, end = decode(data)
    if end != len(data):
        raise Malformed(f"{len(data) - end} bytes after a value")
    return value


def skip(data: bytes, at: int, depth: int = 0) -> int:
    """The position behind the value that begins there, of which nothing more is looked at; Malformed."""
    if at >= len(data):
        raise Malformed("a value ends too early")
    code = data[at]
    if code == DESCRIBED:
        if depth >= DEPTH_MAX:
            raise Malformed(f"values nested more than {DEPTH_MAX} deep")
        return skip(data, skip(data, at + 1, depth + 1), depth + 1)
    return _end_of(code, data, at + 1)


def _end_of(code: int, data: bytes, at: int) -> int:
    width = _WIDTHS.get(code)
    if width is not None:
        end = at + width
    elif code in _SIZES_U8:
        end = at + 1 + data[at] if at < len(data) else len(data) + 1
    elif code in _SIZES_U32:
        end = at + 4 + _u32(data, at)[0] if at + 4 <= len(data) else len(data) + 1
    else:
        raise Malformed(f"no type has the code {code:#04x}")
    if end > len(data):
        raise Malformed("a value ends too early")
    return end


def _described(data: bytes, at: int, depth: int) -> tuple[object, int]:
    if depth >= DEPTH_MAX:
        raise Malformed(f"values nested more than {DEPTH_MAX} deep")
    descriptor, at = decode(data, at + 1, depth + 1)
    value, at = decode(data, at, depth + 1)
    return Described(descriptor, value), at


def _by_code(code: int, data: bytes, at: int, depth: int) -> tuple[object, int]:
    """The value of a type whose code was read."""
    constant = _CONSTANTS.get(code, _NONE)
    if constant is not _NONE:
        return constant, at
    end = _end_of(code, data, at)
    read = _READERS.get(code)
    if read is not None:
        return read(data, at), end
    if code in (0xA0, 0xB0):
        return data[at + (1 if code == 0xA0 else 4) : end], end
    if code in (0xA1, 0xB1):
        return _text(data[at + (1 if code == 0xA1 else 4) : end]), end
    if code in (0xA3, 0xB3):
        return _symbol(data[at + (1 if code == 0xA3 else 4) : end]), end
    return _compound(code, data, at, end, depth), end


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None


def _symbol(raw: bytes) -> Symbol:
    try:
        return Symbol(raw, "ascii")
    except UnicodeDecodeError:
        raise Malformed("a symbol is not ASCII") from None


def _compound(code: int, data: bytes, at: int, end: int, depth: int) -> object:
    if depth >= DEPTH_MAX:
        raise Malformed(f"values nested more than {DEPTH_MAX} deep")
    width = 1 if code < 0xD0 or 0xE0 <= code < 0xF0 else 4
    at += width
    if at + width > end:
        raise Malformed("a list, map or array ends too early")
    count = data[at] if width == 1 else _u32(data, at)[0]
    at += width
    if code in (0xE0, 0xF0):
        return _array(data, at, end, count, depth)
    if count > end - at:
        raise Malformed(f"{count} items in {end - at} bytes")
    items: list[object] = []
    for _ in range(count):
        value, at = decode(data, at, depth + 1)
        items.append(value)
    if at != end:
        raise Malformed("the length of a list or map does not match its header")
    return items if code in (0xC0, 0xD0) else _map(items)


def _map(items: list[object]) -> dict[object, object]:
    if len(items) % 2:
        raise Malformed("a map with a key that has no value")
    try:
        return dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        raise Malformed("a map with a list or map as a key") from None


def _array(data: bytes, at: int, end: int, count: int, depth: int) -> Array:
    begin = at
    descriptor: object = _NONE
    if at < end and data[at] == DESCRIBED:
        descriptor, at = decode(data, at + 1, depth + 1)
    if at >= end:
        raise Malformed("an array without a constructor")
    code = data[at]
    if code == DESCRIBED:
        raise Malformed("an array of values with several descriptors")
    at += 1
    constructor = data[begin:at]
    if count > (EMPTY_ITEMS_MAX if _WIDTHS.get(code) == 0 else end - at):
        raise Malformed(f"an array of {count} items in {end - at} bytes")
    items: list[object] = []
    for _ in range(count):
        value, at = _by_code(code, data, at, depth + 1)
        items.append(value if descriptor is _NONE else Described(descriptor, value))
    if at != end:
        raise Malformed("the length of an array does not match its header")
    return Array(constructor, tuple(items))


def _char(data: bytes, at: int) -> Char:
    number = _u32(data, at)[0]
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise Malformed(f"no character has the number {number:#x}")
    return Char(chr(number))


def _boolean(data: bytes, at: int) -> bool:
    if data[at] > 1:
        raise Malformed(f"a boolean of {data[at]}")
    return data[at] == 1


_NONE = object()

_CONSTANTS: dict[int, object] = {0x40: None, 0x41: True, 0x42: False, 0x43: UInt(0), 0x44: ULong(0)}

_READERS: dict[int, Callable[[bytes, int], object]] = {
    0x45: lambda data, at: [],  # noqa: ARG005
    0x50: lambda data, at: UByte(data[at]),
    0x51: lambda data, at: Byte(_i8(data, at)[0]),
    0x52: lambda data, at: UInt(data[at]),
    0x53: lambda data, at: ULong(data[at]),
    0x54: lambda data, at: Int(_i8(data, at)[0]),
    0x55: lambda data, at: _i8(data, at)[0],
    0x56: _boolean,
    0x60: lambda data, at: UShort(_u16(data, at)[0]),
    0x61: lambda data, at: Short(_i16(data, at)[0]),
    0x70: lambda data, at: UInt(_u32(data, at)[0]),
    0x71: lambda data, at: Int(_i32(data, at)[0]),
    0x72: lambda data, at: Float(_f32(data, at)[0]),
    0x73: _char,
    0x74: lambda data, at: Decimal32(data[at : at + 4]),
    0x80: lambda data, at: ULong(_u64(data, at)[0]),
    0x81: lambda data, at: _i64(data, at)[0],
    0x82: lambda data, at: _f64(data, at)[0],
    0x83: lambda data, at: Timestamp(_i64(data, at)[0]),
    0x84: lambda data, at: Decimal64(data[at : at + 8]),
    0x94: lambda data, at: Decimal128(data[at : at + 16]),
    0x98: lambda data, at: Uuid(data[at : at + 16]),
}

_WIDTHS = {
    code: width
    for codes, width in (
        ((0x40, 0x41, 0x42, 0x43, 0x44, 0x45), 0),
        ((0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56), 1),
        ((0x60, 0x61), 2),
        ((0x70, 0x71, 0x72, 0x73, 0x74), 4),
        ((0x80, 0x81, 0x82, 0x83, 0x84), 8),
        ((0x94, 0x98), 16),
    )
    for code in codes
}
_SIZES_U8 = frozenset({0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0})
_SIZES_U32 = frozenset({0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0})
