"""Values of AMQP's primitive types (part 1, section 1.6) as Python values.

    null, boolean, string, binary, list, map    None, bool, str, bytes, list, dict
    long, double                                int, float
    every other one                             a subclass of the nearest Python type, below

The subclasses exist so that a value that was read can be written again as what it was. Equality is that of the Python
value.
"""

from typing import NamedTuple


class Symbol(str):
    """ASCII, from a limited set of words."""

    __slots__ = ()


class Char(str):
    """One character."""

    __slots__ = ()


class UByte(int):
    """0 to 2^8 - 1."""


class UShort(int):
    """0 to 2^16 - 1."""


class UInt(int):
    """0 to 2^32 - 1."""


class ULong(int):
    """0 to 2^64 - 1."""


class Byte(int):
    """-2^7 to 2^7 - 1."""


class Short(int):
    """-2^15 to 2^15 - 1."""


class Int(int):
    """-2^31 to 2^31 - 1."""


class Timestamp(int):
    """Milliseconds since 1970, UTC."""


class Float(float):
    """32 bits."""


class Uuid(bytes):
    """16 bytes."""


class Decimal32(bytes):
    """4 bytes, kept as they are."""


class Decimal64(bytes):
    """8 bytes, kept as they are."""


class Decimal128(bytes):
    """16 bytes, kept as they are."""


class Described(NamedTuple):
    """A value with the name of its type: a symbol, or a number of 64 bits."""

    descriptor: object
    value: object


class Array(NamedTuple):
    """Values of one type. `constructor`: its code and, for described ones, the descriptor in front, as read."""

    constructor: bytes
    values: tuple[object, ...]
