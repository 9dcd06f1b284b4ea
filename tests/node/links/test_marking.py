"""Code points of packets, as the other end sees them."""

import asyncio
import socket
from contextlib import closing

import pytest

from overlane.membership.neighbours import neighbours_of
from overlane.network import parse_network
from overlane.network.members import members_of
from overlane.node.links.datagrams.sockets import DatagramSockets
from overlane.node.links.marking import mark

EF, AF41 = 46, 34
FAMILIES = {
    socket.AF_INET: ("127.0.0.1", socket.IPPROTO_IP, socket.IP_RECVTOS, socket.IP_TOS),
    socket.AF_INET6: ("::1", socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, socket.IPV6_TCLASS),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_datagram_of_a_socket_carries_its_own_code_point(family: socket.AddressFamily) -> None:
    host, level, wants, _ = FAMILIES[family]

    async def story() -> list[tuple[bytes, int]]:
        with closing(socket.socket(family, socket.SOCK_DGRAM)) as neighbour:
            neighbour.settimeout(20)
            neighbour.setsockopt(level, wants, 1)
            neighbour.bind((host, 0))
            sockets = DatagramSockets(0)
            own = sockets.at((host, 0) if family == socket.AF_INET else (host, 0, 0, 0))
            assert own is not None
            for datagram, dscp in ((b"a", EF), (b"b", 0), (b"c", AF41)):
                own.send(datagram, neighbour.getsockname(), dscp)
            came = [neighbour.recvmsg(100, 100) for _ in range(3)]
            sockets.close()
            return [(datagram, said[0][2][0] >> 2) for datagram, said, _, _ in came]

    assert asyncio.run(story()) == [(b"a", EF), (b"b", 0), (b"c", AF41)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_connection_is_marked_and_marked_otherwise(family: socket.AddressFamily) -> None:
    _, level, _, field = FAMILIES[family]
    with closing(socket.socket(family, socket.SOCK_STREAM)) as one:
        mark(one, EF)
        assert one.getsockopt(level, field) >> 2 == EF
        mark(one, 0)
        assert one.getsockopt(level, field) >> 2 == 0


def test_what_is_no_connection_of_the_internet_stays_as_it_is() -> None:
    here, there = socket.socketpair()
    with closing(here), closing(there):
        mark(here, EF)
    mark(None, EF)


def test_both_ends_of_a_link_learn_its_code_point() -> None:
    network = parse_network('[brokers.a]\n[brokers.b]\n[[links]]\nends = ["a", "b"]\nlatency = "1ms"\ndscp = "AF41"')
    assert {neighbours_of(members_of(network), me)[peer].dscp for me, peer in (("a", "b"), ("b", "a"))} == {AF41}
