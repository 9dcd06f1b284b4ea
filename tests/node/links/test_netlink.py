"""What the kernel reports about addresses, read from its messages."""

import asyncio
import socket
import struct
import sys
from random import Random

import pytest

from overlane.node.links.multipath import netlink
from overlane.node.links.multipath.address_watch import AddressWatch
from overlane.node.links.multipath.netlink import LocalAddress
from overlane.node.links.multipath.uplinks import OwnUplinks, is_literal

UP, RUNNING = 0x1, 0x40


def attribute(kind: int, value: bytes) -> bytes:
    return (struct.pack("=HH", 4 + len(value), kind) + value).ljust((4 + len(value) + 3) & ~3, b"\0")


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


def interface(index: int, name: str, flags: int) -> bytes:
    return message(16, struct.pack("=BxHiII", 0, 1, index, flags, 0) + attribute(3, name.encode() + b"\0"))


def address(index: int, host: str, *, scope: int = 0, flags: int = 0) -> bytes:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    raw = socket.inet_pton(family, host)
    return message(20, struct.pack("=BBBBi", family, 24, flags, scope, index) + attribute(1, raw) + attribute(2, raw))


DONE = message(3, bytes(4))
INTERFACES = interface(1, "lo", UP | RUNNING) + interface(2, "eth0", UP | RUNNING) + interface(3, "wwan0", UP) + DONE
ADDRESSES = (
    address(1, "127.0.0.1", scope=254)
    + address(2, "10.0.0.7")
    + address(2, "fd00::7")
    + address(2, "fe80::7", scope=253)
    + address(3, "192.0.2.9")
    + address(2, "fd00::8", flags=0x40)
    + DONE
)
KNOWN = (
    LocalAddress("10.0.0.7", "eth0", True),
    LocalAddress("fd00::7", "eth0", True),
    LocalAddress("fd00::8", "eth0", False),
    LocalAddress("192.0.2.9", "wwan0", False),
)


def test_addresses_are_usable_where_their_interface_is_up_and_has_a_carrier() -> None:
    assert netlink.parse(INTERFACES, ADDRESSES) == KNOWN
    assert (netlink.is_done(INTERFACES), netlink.is_done(INTERFACES[: -len(DONE)])) == (True, False)


@pytest.mark.parametrize("seed", range(20))
def test_messages_that_are_cut_off_or_garbled_do_no_harm(seed: int) -> None:
    print("seed", seed)
    luck = Random(seed)
    garbled = bytearray(INTERFACES + ADDRESSES)
    for _ in range(20):
        garbled[luck.randrange(len(garbled))] = luck.randrange(256)
    cut = bytes(garbled[: luck.randrange(len(garbled))])
    netlink.parse(cut, cut)


@pytest.mark.skipif(sys.platform != "linux", reason="netlink is Linux's")
def test_the_kernel_answers() -> None:
    watch = AddressWatch(lambda _: None)

    async def story() -> None:
        watch.open()
        watch.close()

    asyncio.run(story())
    assert watch.addresses is not None


@pytest.mark.parametrize(
    ("uplinks", "expected"),
    [
        (OwnUplinks(), ()),
        (OwnUplinks(("10.0.0.7",)), ()),  # one: the kernel chooses
        (OwnUplinks(("10.0.0.7", "198.51.100.1")), ("10.0.0.7",)),  # the other one is of a NAT before it
        (OwnUplinks(("10.0.0.7", "192.0.2.9")), ("10.0.0.7",)),  # that one has no carrier
        (OwnUplinks((), ("eth0", "wwan0")), ("10.0.0.7", "fd00::7")),
        (OwnUplinks(("10.0.0.7",), ("eth0",)), ("10.0.0.7", "fd00::7")),
    ],
)
def test_paths_are_opened_from_addresses_of_the_file_that_the_machine_has(
    uplinks: OwnUplinks, expected: tuple[str, ...]
) -> None:
    assert uplinks.local_hosts(KNOWN) == expected


def test_a_name_is_no_address() -> None:
    assert [is_literal(host) for host in ("10.0.0.1", "fd00::1", "broker.example", "")] == [True, True, False, False]
