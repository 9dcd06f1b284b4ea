"""Addresses of this machine, as the Linux kernel reports them over netlink (RFC 3549): messages and their parsing.

An address is usable while its interface is up and has a carrier. Interfaces of virtual machines and tunnels that report
no carrier state count as usable while they are up.
"""

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass

GROUPS = 0x1 | 0x10 | 0x100
"""RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR."""

_RTM_NEWLINK, _RTM_GETLINK = 16, 18
_RTM_NEWADDR, _RTM_GETADDR = 20, 22
_NLMSG_DONE = 3
_NLM_F_REQUEST, _NLM_F_DUMP = 0x1, 0x300
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_IFLA_IFNAME, _IFA_ADDRESS, _IFA_LOCAL = 3, 1, 2
_IFA_F_UNUSABLE = 0x08 | 0x20 | 0x40
"""Duplicate, deprecated or tentative."""
_SCOPE_LINK = 253

_HEAD = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBi")
_ATTRIBUTE = struct.Struct("=HH")


@dataclass(frozen=True, slots=True)
class LocalAddress:
    host: str
    interface: str
    is_usable: bool


def dump_request(kind: int, sequence: int) -> bytes:
    body = _LINK.pack(0, 0, 0, 0, 0) if kind == _RTM_GETLINK else _ADDRESS.pack(0, 0, 0, 0, 0)
    return _HEAD.pack(_HEAD.size + len(body), kind, _NLM_F_REQUEST | _NLM_F_DUMP, sequence, 0) + body


def requests() -> list[bytes]:
    """What to ask for: all interfaces, then all addresses."""
    return [dump_request(_RTM_GETLINK, 1), dump_request(_RTM_GETADDR, 2)]


def is_done(data: bytes) -> bool:
    """Whether the answer to a request ends with this."""
    return any(kind == _NLMSG_DONE for kind, _ in _messages(data))


def parse(interfaces: bytes, addresses: bytes) -> tuple[LocalAddress, ...]:
    """From the answers to `requests`, loopback and link-local addresses left out."""
    names, usable = {}, {}
    for kind, body in _messages(interfaces):
        if kind == _RTM_NEWLINK and len(body) >= _LINK.size:
            _, _, index, flags, _ = _LINK.unpack_from(body)
            names[index] = _attributes(body[_LINK.size :]).get(_IFLA_IFNAME, b"").rstrip(b"\0").decode(errors="replace")
            usable[index] = bool(flags & _IFF_UP and flags & _IFF_RUNNING)
    found = []
    for kind, body in _messages(addresses):
        if kind != _RTM_NEWADDR or len(body) < _ADDRESS.size:
            continue
        _, _, flags, scope, index = _ADDRESS.unpack_from(body)
        attributes = _attributes(body[_ADDRESS.size :])
        raw = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS, b"")
        if len(raw) not in (4, 16) or scope >= _SCOPE_LINK:
            continue
        is_usable = usable.get(index, False) and not flags & _IFA_F_UNUSABLE
        found.append(LocalAddress(str(ipaddress.ip_address(raw)), names.get(index, ""), is_usable))
    return tuple(sorted(found, key=lambda one: (one.interface, one.host)))


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEAD.size <= len(data):
        length, kind, *_ = _HEAD.unpack_from(data, at)
        if not _HEAD.size <= length <= len(data) - at:
            return
        yield kind, data[at + _HEAD.size : at + length]
        at += (length + 3) & ~3


def _attributes(data: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if not _ATTRIBUTE.size <= length <= len(data) - at:
            break
        found[kind] = data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    return found
