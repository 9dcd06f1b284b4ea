"""Marking: the code point of packets of a link, by which the network distinguishes them (DSCP, RFC 2474).

A connection has one code point. TCP treats reordered packets as lost, so the network must treat packets of a connection
alike (RFC 7657). Datagrams of several links share one socket, so each has its own code point.
"""

import logging
import socket
import sys

log = logging.getLogger("overlane.link")

Ancillary = tuple[int, int, bytes]
"""As `socket.sendmsg` has it."""

_FIELDS = {
    socket.AF_INET: (socket.IPPROTO_IP, socket.IP_TOS),
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_TCLASS),
}


MARKS_DATAGRAMS = sys.platform == "linux"
"""Whether a datagram can say its own code point."""


def mark(connected: socket.socket | None, dscp: int) -> None:
    """Let all packets that a connection sends from now on carry the code point."""
    field = None if connected is None else _FIELDS.get(connected.family)
    if connected is None or field is None:
        return
    try:
        connected.setsockopt(*field, dscp << 2)
    except OSError as error:
        log.warning("packets are not marked with DSCP %d: %s", dscp, error.strerror)


def ancillary(family: int, dscp: int) -> list[Ancillary]:
    """What to send a datagram with, so that it carries the code point."""
    field = _FIELDS.get(socket.AddressFamily(family))
    return [] if field is None else [(*field, (dscp << 2).to_bytes(4, sys.byteorder))]
