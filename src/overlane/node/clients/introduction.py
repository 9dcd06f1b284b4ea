"""How a broker introduces a client whose connection it passes on: behind the greeting, and ahead of the client's bytes.

length u16 | msgpack [address, is loopback, is secure, user or nil, listener]
"""

import struct

import msgspec

from overlane.errors import ProtocolViolation
from overlane.pubsub.contract.consumer import Peer

INTRODUCTION_BYTES_MAX = 2048

LENGTH = struct.Struct("!H")


class Introduction(msgspec.Struct, frozen=True, array_like=True):
    """Who the client is, as the broker says that it has reached."""

    address: str
    is_loopback: bool
    is_secure: bool
    user: str | None
    listener: str

    def encoded(self) -> bytes:
        body = msgspec.msgpack.encode(self)
        return LENGTH.pack(len(body)) + body

    def peer(self, via: str) -> Peer:
        return Peer(self.address, self.is_loopback, self.is_secure, self.user, self.listener, via)


def read_introduction(data: bytes | bytearray) -> tuple[Introduction, int] | None:
    """The introduction, and where it ends; None if it is not complete. ProtocolViolation."""
    if len(data) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack_from(data)
    if length > INTRODUCTION_BYTES_MAX:
        raise ProtocolViolation(f"an introduction of {length} bytes")
    end = LENGTH.size + length
    if len(data) < end:
        return None
    try:
        return msgspec.msgpack.decode(bytes(data[LENGTH.size : end]), type=Introduction), end
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ProtocolViolation("an introduction without contents") from None
