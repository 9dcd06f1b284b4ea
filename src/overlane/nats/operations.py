r"""Operations of NATS clients, as bytes: one at a time, from a position on.

    name arguments \r\n                       PUB and HPUB: then the headers and the payload, and \r\n

    CONNECT {json}      PUB subject [reply] size                    SUB subject [queue] sid     PING
    UNSUB sid [max]     HPUB subject [reply] header-size size       PONG

Names are read in capitals or small letters; arguments are divided by blanks or tabs. A line is at most as long as
nats-server allows, and the size of a payload is checked before any of it is waited for.
"""

from typing import NamedTuple

from overlane.nats.violation import Violation
from overlane.pubsub.counters import Refusal

LINE_BYTES_MAX = 4_096
END = b"\r\n"
PUBLISHING = (b"PUB", b"HPUB")


class Operation(NamedTuple):
    """`end`: the position behind it."""

    name: bytes
    arguments: list[bytes]
    headers: bytes
    payload: bytes
    end: int


class Incomplete(NamedTuple):
    """So many bytes are needed, from the position on, before it is worth to look again."""

    needed: int


def read_operation(data: bytes, position: int, payload_bytes_max: int) -> Operation | Incomplete:
    """The operation at the position; Violation if there is none."""
    line_end = data.find(END, position, position + LINE_BYTES_MAX + len(END))
    if line_end < 0:
        if len(data) - position >= LINE_BYTES_MAX + len(END):
            told = f"a line of more than {LINE_BYTES_MAX} bytes"
            raise Violation("Maximum Control Line Exceeded", told, Refusal.TOO_LARGE)
        return Incomplete(len(data) - position + 1)
    line, body = data[position:line_end], line_end + len(END)
    pieces = line.split(None, 1)
    name = pieces[0].upper() if pieces else b""
    rest = pieces[1] if len(pieces) > 1 else b""
    if name not in PUBLISHING:
        arguments = [rest.strip()] if name == b"CONNECT" else rest.split()
        return Operation(name, arguments, b"", b"", body)
    arguments = rest.split()
    header_bytes, size = _sizes(name, arguments, payload_bytes_max)
    end = body + size
    if len(data) < end + len(END):
        return Incomplete(end + len(END) - position)
    if data[end : end + len(END)] != END:
        raise Violation("Parser Error", "a payload that is longer than its size")
    return Operation(name, arguments, data[body : body + header_bytes], data[body + header_bytes : end], end + len(END))


def _sizes(name: bytes, arguments: list[bytes], payload_bytes_max: int) -> tuple[int, int]:
    """Of the headers, and of headers and payload; they are taken off the arguments."""
    count = 2 if name == b"HPUB" else 1
    if not 1 <= len(arguments) - count <= 2:
        raise Violation("Parser Error", f"{name.decode()} with {len(arguments)} arguments")
    numbers = [read_number(one) for one in arguments[-count:]]
    del arguments[-count:]
    header_bytes, size = (numbers[0], numbers[1]) if count == 2 else (0, numbers[0])
    if size > payload_bytes_max:
        told = f"a payload of {size} bytes; at most {payload_bytes_max} are allowed"
        raise Violation("Maximum Payload Violation", told, Refusal.TOO_LARGE)
    if header_bytes > size or (count == 2 and not header_bytes):
        raise Violation("Parser Error", "headers that are longer than the message, or empty")
    return header_bytes, size


def read_number(text: bytes) -> int:
    if not text.isdigit() or len(text) > 9:
        raise Violation("Parser Error", "a size or count that is no number")
    return int(text)
