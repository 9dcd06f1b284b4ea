"""Packet captures of RSVP messages, for Wireshark and tshark; pure.

A capture has a header and a record for each packet, times in nanoseconds. Packets begin with the IP header (link type
101); RSVP is IP protocol 46. Brokers send their messages inside the overlay's control lane: the addresses of a packet
are those of the two neighbours as the message itself spells them.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from overlane.reservation.rsvp.messages import checksum
from overlane.reservation.rsvp.objects import Address

_FILE = struct.pack("!IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 101)
_RECORD = struct.Struct("!IIII")
_IPV4 = struct.Struct("!BBHHHBBH4s4s")
_IPV6 = struct.Struct("!IHBB16s16s")
_RSVP = 46
_TTL = 64
_SECOND_NS = 1_000_000_000
_SAME_WITHIN_NS = 2 * _SECOND_NS
"""A message is captured at its other end no later than this."""


class Captured(NamedTuple):
    """An encoded message, when and between which neighbours it was sent."""

    at_ns: int
    source: Address
    destination: Address
    message: bytes


def capture(sent: Iterable[Captured]) -> bytes:
    """The content of a file."""
    parts = [_FILE]
    for at_ns, source, destination, message in sent:
        packet = _packet(source, destination, message)
        seconds, nanoseconds = divmod(at_ns, _SECOND_NS)
        parts += [_RECORD.pack(seconds, nanoseconds, len(packet), len(packet)), packet]
    return b"".join(parts)


def merged(files: Iterable[bytes]) -> bytes:
    """The content of several files as one, in the order of time. What was captured at both ends is there once."""
    records: list[tuple[int, int, bytes]] = []
    for number, content in enumerate(files):
        at = len(_FILE)
        while at + _RECORD.size <= len(content):
            seconds, nanoseconds, size, _ = _RECORD.unpack_from(content, at)
            end = at + _RECORD.size + size
            records.append((seconds * _SECOND_NS + nanoseconds, number, content[at:end]))
            at = end
    kept, seen = [_FILE], dict[bytes, tuple[int, int]]()
    for at_ns, number, record in sorted(records):
        packet = record[_RECORD.size :]
        before_ns, other = seen.get(packet, (-_SAME_WITHIN_NS, number))
        if other == number or at_ns - before_ns > _SAME_WITHIN_NS:
            seen[packet] = at_ns, number
            kept.append(record)
    return b"".join(kept)


def _packet(source: Address, destination: Address, message: bytes) -> bytes:
    if len(source) != len(destination):
        raise ValueError("addresses of two families")
    if len(source) == 16:
        return _IPV6.pack(6 << 28, len(message), _RSVP, _TTL, source, destination) + message
    size = _IPV4.size + len(message)
    bare = _IPV4.pack(0x45, 0, size, 0, 0, _TTL, _RSVP, 0, source, destination)
    return _IPV4.pack(0x45, 0, size, 0, 0, _TTL, _RSVP, checksum(bare), source, destination) + message
