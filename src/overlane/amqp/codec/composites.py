"""Composite types: lists with named fields (part 1, section 1.4), read and written by one description of them.

A class of composites is a NamedTuple whose fields have defaults, with a row in `define`: its descriptor and the kind of
each field. Fields that are null at the end of a list are left out, but for composites that are written whole, as some
clients count on. What is read is checked: a field of another kind, a
number that is too large or a mandatory field that is missing is Malformed.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeVar, cast

from overlane.amqp.codec import encoding
from overlane.amqp.codec.decoding import decode
from overlane.amqp.codec.malformed import INVALID_FIELD, Malformed
from overlane.amqp.codec.types import Array, Described, Symbol

T = TypeVar("T")

_U32_MAX = 0xFFFF_FFFF
_FIELDS_MAX = 64


class FieldType(Enum):
    """What a field holds, beside null."""

    BOOLEAN = "boolean"
    UBYTE = "ubyte"
    USHORT = "ushort"
    UINT = "uint"
    ULONG = "ulong"
    MILLISECONDS = "timestamp"
    STRING = "string"
    SYMBOL = "symbol"
    BINARY = "binary"
    MAP = "map"
    SYMBOLS = "symbols"
    """One symbol, or several: a tuple."""
    ANY = "any"
    """Whatever it is, as a value."""
    COMPOSITE = "composite"
    """Another composite, or a described value that is none that is known."""


class _Definition(NamedTuple):
    make: Callable[..., Any]
    name: str
    code: int
    fields: tuple[tuple[str, FieldType], ...]
    mandatory: int
    """So many fields at the beginning must be there."""
    is_whole: bool
    """Whether all fields are written."""


_BY_DESCRIPTOR: dict[object, _Definition] = {}
_BY_CLASS: dict[type, _Definition] = {}


def define(cls: type, name: str, code: int, kinds: str, mandatory: int = 0, *, is_whole: bool = False) -> None:
    """`kinds`: those of its fields, in order, as words."""
    fields = tuple(zip(cast(Any, cls)._fields, map(FieldType, kinds.split()), strict=True))
    definition = _Definition(cls, name, code, fields, mandatory, is_whole)
    _BY_DESCRIPTOR[code] = _BY_DESCRIPTOR[Symbol(name)] = _BY_CLASS[cls] = definition


def compose(value: object) -> object:
    """What a described value stands for; itself if it is no composite that is known. Malformed."""
    if not isinstance(value, Described):
        return value
    try:
        definition = _BY_DESCRIPTOR.get(value.descriptor)
    except TypeError:
        raise Malformed("a list or map as a descriptor") from None
    if definition is None:
        return value
    items = value.value
    if not isinstance(items, list):
        raise Malformed(f"{definition.name}: not a list")
    return _made(definition, items)


def _made(definition: _Definition, items: list[object]) -> object:
    fields = definition.fields
    if len(items) > len(fields):
        raise Malformed(f"{definition.name}: {len(items)} fields; at most {len(fields)} are allowed")
    for at, item in enumerate(items):
        if item is None:
            if at < definition.mandatory:
                raise Malformed(f"{definition.name}: the field {fields[at][0]} is missing", INVALID_FIELD)
            continue
        name, kind = fields[at]
        items[at] = _checked(definition.name, name, kind, item)
    if len(items) < definition.mandatory:
        raise Malformed(f"{definition.name}: the field {fields[len(items)][0]} is missing", INVALID_FIELD)
    return definition.make(*items)


_LIMITS = {
    FieldType.UBYTE: 0xFF,
    FieldType.USHORT: 0xFFFF,
    FieldType.UINT: _U32_MAX,
    FieldType.ULONG: 0xFFFF_FFFF_FFFF_FFFF,
}
_TYPES = {
    FieldType.STRING: str,
    FieldType.BINARY: bytes,
    FieldType.MAP: dict,
    FieldType.SYMBOL: str,
    FieldType.BOOLEAN: bool,
}


def _checked(composite: str, name: str, kind: FieldType, item: object) -> object:
    limit = _LIMITS.get(kind)
    if limit is not None:
        if isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= limit:
            return int(item)
    elif kind is FieldType.ANY:
        return item
    elif kind is FieldType.COMPOSITE:
        return compose(item)
    elif kind is FieldType.SYMBOLS:
        if isinstance(item, Symbol):
            return (item,)
        if isinstance(item, Array) and all(isinstance(one, Symbol) for one in item.values):
            return item.values
    elif kind is FieldType.MILLISECONDS:
        if isinstance(item, int) and not isinstance(item, bool):
            return int(item)
    elif isinstance(item, _TYPES[kind]):
        return item
    raise Malformed(f"{composite}: {name} is not of the type {kind.value}", INVALID_FIELD)


def read(data: bytes, at: int) -> tuple[object, int]:
    """The composite that begins there, and the position behind it; Malformed."""
    value, at = decode(data, at)
    return compose(value), at


def write(value: object) -> bytes:
    """A composite, or a value."""
    definition = _BY_CLASS.get(type(value))
    if definition is None:
        return encoding.encode(value)
    return encoding.described(definition.code, encoding.list_of(fields_of(cast(tuple[object, ...], value), definition)))


def fields_of(value: tuple[object, ...], definition: _Definition) -> list[bytes]:
    written: list[bytes] = []
    last = 0
    for (_, kind), item in zip(definition.fields, value, strict=True):
        if item is None:
            written.append(encoding.NULL)
        else:
            written.append(_WRITERS[kind](item))
            last = len(written)
    return written if definition.is_whole else written[:last]


_WRITERS: dict[FieldType, Callable[..., bytes]] = {
    FieldType.BOOLEAN: encoding.boolean,
    FieldType.UBYTE: lambda value: bytes((0x50, value)),
    FieldType.USHORT: lambda value: b"\x60" + value.to_bytes(2),
    FieldType.UINT: encoding.uint,
    FieldType.ULONG: encoding.ulong,
    FieldType.MILLISECONDS: lambda value: b"\x83" + value.to_bytes(8, signed=True),
    FieldType.STRING: encoding.string,
    FieldType.SYMBOL: encoding.symbol,
    FieldType.BINARY: encoding.binary,
    FieldType.MAP: encoding.encode,
    FieldType.SYMBOLS: encoding.symbols,
    FieldType.ANY: encoding.encode,
    FieldType.COMPOSITE: write,
}
