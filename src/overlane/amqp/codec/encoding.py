"""Writing values: Python values (`types`) to bytes, in the shortest form of each type."""

from collections.abc import Callable
from struct import Struct

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

NULL = b"\x40"
TRUE = b"\x41"
FALSE = b"\x42"
EMPTY_LIST = b"\x45"

_u16 = Struct("!BH").pack
_u32 = Struct("!BI").pack
_u64 = Struct("!BQ").pack
_i8 = Struct("!Bb").pack
_i16 = Struct("!Bh").pack
_i32 = Struct("!Bi").pack
_i64 = Struct("!Bq").pack
_f32 = Struct("!Bf").pack
_f64 = Struct("!Bd").pack
_sized = Struct("!BII").pack
_plain_u32 = Struct("!I").pack

_U8_MAX = 0xFF
_U32_MAX = 0xFFFF_FFFF


def encode(value: object) -> bytes:
    """TypeError for a value of a Python type that stands for none of AMQP's."""
    write = _WRITERS.get(type(value))
    if write is None:
        raise TypeError(f"no type of AMQP for {type(value).__name__}")
    return write(value)


def uint(value: int) -> bytes:
    if value <= _U8_MAX:
        return bytes((0x52, value)) if value else b"\x43"
    return _u32(0x70, value)


def ulong(value: int) -> bytes:
    if value <= _U8_MAX:
        return bytes((0x53, value)) if value else b"\x44"
    return _u64(0x80, value)


def binary(value: bytes) -> bytes:
    size = len(value)
    return (bytes((0xA0, size)) if size <= _U8_MAX else _u32(0xB0, size)) + value


def string(value: str) -> bytes:
    raw = value.encode()
    size = len(raw)
    return (bytes((0xA1, size)) if size <= _U8_MAX else _u32(0xB1, size)) + raw


def symbol(value: str) -> bytes:
    raw = value.encode("ascii")
    size = len(raw)
    return (bytes((0xA3, size)) if size <= _U8_MAX else _u32(0xB3, size)) + raw


def boolean(value: bool) -> bytes:
    return TRUE if value else FALSE


def compound(code: int, count: int, items: bytes) -> bytes:
    """A list (0xC0) or map (0xC1) of these encoded items; with 0x10 more, the long form, if it has to be."""
    size = len(items)
    if size < _U8_MAX and count <= _U8_MAX:
        return bytes((code, size + 1, count)) + items
    return _sized(code + 0x10, size + 4, count) + items


def list_of(items: list[bytes]) -> bytes:
    """Of encoded values."""
    return compound(0xC0, len(items), b"".join(items)) if items else EMPTY_LIST


def map_of(pairs: list[bytes]) -> bytes:
    """Of encoded keys and values by turns."""
    return compound(0xC1, len(pairs), b"".join(pairs))


def described(code: int, value: bytes) -> bytes:
    """A value whose descriptor is a small number."""
    return bytes((0x00, 0x53, code)) + value


def symbols(values: tuple[str, ...]) -> bytes:
    """An array of symbols."""
    raw = [value.encode("ascii") for value in values]
    items = b"\xb3" + b"".join([_plain_u32(len(one)) + one for one in raw])
    return _sized(0xF0, len(items) + 4, len(raw)) + items


def _int(value: int) -> bytes:
    return _i8(0x54, value) if -0x80 <= value < 0x80 else _i32(0x71, value)


def _long(value: int) -> bytes:
    return _i8(0x55, value) if -0x80 <= value < 0x80 else _i64(0x81, value)


def _list(value: list[object]) -> bytes:
    return list_of([encode(one) for one in value])


def _map(value: dict[object, object]) -> bytes:
    return map_of([encode(one) for pair in value.items() for one in pair])


def _described(value: Described) -> bytes:
    return b"\x00" + encode(value.descriptor) + encode(value.value)


def _array(value: Array) -> bytes:
    """Each item as the constructor of the array writes it: that is not always the shortest form."""
    code = value.constructor[-1]
    is_described = len(value.constructor) > 1
    items = [_item(code, one.value if is_described and isinstance(one, Described) else one) for one in value.values]
    body = value.constructor + b"".join(items)
    return _sized(0xF0, len(body) + 4, len(items)) + body


def _item(code: int, value: object) -> bytes:
    """A value without its constructor, written by the type with this code."""
    plain = encode(value)
    if plain[0] == code:
        return plain[1:]
    if isinstance(value, bool):
        return b"" if code != 0x56 else bytes((value,))
    if isinstance(value, int):
        return value.to_bytes(_INT_WIDTHS[code], signed=code in _SIGNED)
    if isinstance(value, list | dict):
        items = [encode(one) for one in (value if isinstance(value, list) else _flat(value))]
        body = b"".join(items)
        width = 1 if code < 0xD0 else 4
        return (len(body) + width).to_bytes(width) + len(items).to_bytes(width) + body
    if isinstance(value, Array):
        width, body = 1 if code == 0xE0 else 4, plain[9:]
        return (len(body) + width).to_bytes(width) + len(value.values).to_bytes(width) + body
    # A string, symbol or binary that is written with a longer length than it needs.
    raw = value.encode() if isinstance(value, str) else value
    if not isinstance(raw, bytes):
        raise TypeError(f"no item of an array: {type(value).__name__}")
    return len(raw).to_bytes(1 if code < 0xB0 else 4) + raw


def _flat(value: dict[object, object]) -> list[object]:
    return [one for pair in value.items() for one in pair]


_INT_WIDTHS = {0x43: 0, 0x44: 0, 0x52: 1, 0x53: 1, 0x54: 1, 0x55: 1, 0x70: 4, 0x71: 4, 0x80: 8, 0x81: 8}
_SIGNED = frozenset({0x54, 0x55, 0x71, 0x81})

_WRITERS: dict[type, Callable[..., bytes]] = {
    type(None): lambda _: NULL,
    bool: boolean,
    str: string,
    bytes: binary,
    int: _long,
    float: lambda value: _f64(0x82, value),
    list: _list,
    dict: _map,
    Symbol: symbol,
    Char: lambda value: _u32(0x73, ord(value)),
    UByte: lambda value: bytes((0x50, value)),
    UShort: lambda value: _u16(0x60, value),
    UInt: uint,
    ULong: ulong,
    Byte: lambda value: _i8(0x51, value),
    Short: lambda value: _i16(0x61, value),
    Int: _int,
    Timestamp: lambda value: _i64(0x83, value),
    Float: lambda value: _f32(0x72, value),
    Uuid: lambda value: b"\x98" + value,
    Decimal32: lambda value: b"\x74" + value,
    Decimal64: lambda value: b"\x84" + value,
    Decimal128: lambda value: b"\x94" + value,
    Described: _described,
    Array: _array,
}
