"""Links with a code point: what packets carry on the wire, as a raw socket sees them."""

import re
import socket
import time
from contextlib import closing
from pathlib import Path
from select import select

import pytest

from overlays import RealOverlay, overlay

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
LINK = 'latency = "1ms"'
EF, AF41 = 46, 34
PROTOCOLS = {socket.IPPROTO_TCP, socket.IPPROTO_UDP}
WHILE_S = 1.5
"""Longer than neighbours are silent."""


class Wire:
    """Packets of the loopback device."""

    def __init__(self, net: RealOverlay) -> None:
        self._ports = {int(member.overlay.rpartition(":")[2]) for member in net.members.values()}
        self._sockets = [socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol) for protocol in PROTOCOLS]

    def close(self) -> None:
        for one in self._sockets:
            one.close()

    def wait_for(self, dscp: int) -> set[int]:
        """Until all packets of a while, of both protocols and directions, carry the code point; what the last while's
        packets carried."""
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends:
            found = self._watch(WHILE_S)
            if set(found.values()) == {dscp} and {key[0] for key in found} == PROTOCOLS and len(found) >= 4:
                break
        return set(found.values())

    def _watch(self, duration_s: float) -> dict[tuple[int, int, int, int], int]:
        """By protocol, both ports, and code point: the code point."""
        found: dict[tuple[int, int, int, int], int] = {}
        ends = time.monotonic() + duration_s
        while (left_s := ends - time.monotonic()) > 0:
            for one in select(self._sockets, [], [], left_s)[0]:
                packet = one.recv(65_536)
                header = (packet[0] & 15) * 4
                source, destination = (int.from_bytes(packet[header + at : header + at + 2]) for at in (0, 2))
                if self._ports & {source, destination}:
                    found[packet[9], source, destination, packet[1] >> 2] = packet[1] >> 2
        return found


def test_connections_and_datagrams_of_a_link_carry_its_code_point_in_both_directions(tmp_path: Path) -> None:
    with overlay(tmp_path, {"a-b": f'{LINK}\ndscp = "EF"'}) as net, closing(Wire(net)) as wire:
        assert wire.wait_for(EF) == {EF}
        for word, dscp in (('"AF41"', AF41), ("0", 0)):
            net.file.write_text(re.sub("dscp = .*", f"dscp = {word}", net.file.read_text()))
            for member in net.members.values():
                member.reload()
            assert wire.wait_for(dscp) == {dscp}
