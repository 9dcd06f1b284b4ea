"""IPv4 packets as a router reads and writes them: flows, and ICMP destination unreachable.

0       version 4, header words   1   service   2-3  length    4-5  id    6-7  flags, fragment offset
8       time to live              9   protocol  10-11 checksum
12-15   source                    16-19 destination
20...   options, then the payload: TCP and UDP begin with the two ports, ICMP echoes have their id at 4-5
"""

import struct
from socket import inet_aton
from typing import NamedTuple

HEADER_BYTES = 20
ICMP, TCP, UDP = 1, 6, 17

HOST_UNREACHABLE = 1
PROHIBITED = 13

_UNREACHABLE = 3
_ECHOES = (0, 8)
_TIME_TO_LIVE = 64
_MULTICAST = 224
_HEADER = struct.Struct("!BBHHHBBH4s4s")
_PORTS = struct.Struct("!HH")
_ICMP = struct.Struct("!BBHI")


class PacketFlow(NamedTuple):
    """Two ends of a conversation, as one packet names them. Without ports, they are 0."""

    protocol: int
    source: bytes
    source_port: int
    destination: bytes
    destination_port: int

    def reversed(self) -> "PacketFlow":
        return PacketFlow(self.protocol, self.destination, self.destination_port, self.source, self.source_port)


def is_ipv4(packet: bytes) -> bool:
    return len(packet) >= HEADER_BYTES and packet[0] >> 4 == 4


def flow_of(packet: bytes) -> PacketFlow:
    """The conversation an IPv4 packet belongs to; later fragments carry no ports."""
    protocol = packet[9]
    source, destination = packet[12:16], packet[16:20]
    start = 4 * (packet[0] & 15)
    if (packet[6] & 31 or packet[7]) or len(packet) < start + 8:
        return PacketFlow(protocol, source, 0, destination, 0)
    if protocol in (TCP, UDP):
        source_port, destination_port = _PORTS.unpack_from(packet, start)
        return PacketFlow(protocol, source, source_port, destination, destination_port)
    if protocol == ICMP and packet[start] in _ECHOES:
        (name,) = struct.unpack_from("!H", packet, start + 4)
        return PacketFlow(protocol, source, name, destination, name)
    return PacketFlow(protocol, source, 0, destination, 0)


def unreachable(packet: bytes, code: int) -> bytes | None:
    """What a router tells the sender of this packet; None where nothing may be told (RFC 1122, 3.2.2): of an ICMP
    error, a later fragment, or a packet for many."""
    start = 4 * (packet[0] & 15)
    is_error = packet[9] == ICMP and (len(packet) <= start or packet[start] not in _ECHOES)
    is_for_many = packet[16] >= _MULTICAST
    if is_error or is_for_many or packet[6] & 31 or packet[7]:
        return None
    quoted = packet[: start + 8]
    told = _ICMP.pack(_UNREACHABLE, code, 0, 0) + quoted
    told = told[:2] + struct.pack("!H", checksum(told)) + told[4:]
    # It comes from the one who is not reached, since the routers between have no addresses.
    length = HEADER_BYTES + len(told)
    header = _HEADER.pack(0x45, 0, length, 0, 0, _TIME_TO_LIVE, ICMP, 0, packet[16:20], packet[12:16])
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + told


def checksum(data: bytes) -> int:
    """Of RFC 1071, over an even number of bytes or a byte of zero after an odd one."""
    padded = data + bytes(len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def address_bytes(address: str) -> bytes:
    return inet_aton(address)
