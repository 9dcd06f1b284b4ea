"""The wide area as a pure machine: which packet comes out where and when."""

import struct

from overlane.core.units import MS, NEVER, Nanos
from overlane.testbed.direction import Conditions
from overlane.testbed.packets import ICMP, TCP, UDP, address_bytes, checksum, flow_of, unreachable
from overlane.testbed.switch import Plug, Switch, SwitchConfig

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def packet(source: str, target: str, *, protocol: int = UDP, ports: tuple[int, int] = (1000, 2000)) -> bytes:
    payload = struct.pack("!HH", *ports) + bytes(4)
    header = struct.pack(
        *("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0),
        *(address_bytes(source), address_bytes(target)),
    )
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload


def three_in_a_row(**more: object) -> Switch:
    """a - 10 ms - b - 20 ms - c"""
    ten, twenty = Conditions(latency_ns=10 * MS), Conditions(latency_ns=20 * MS)
    plugs = tuple(Plug(site=site, address=address) for site, address in (("a", A), ("b", B), ("c", C)))
    paths = (("a", "b", ten), ("b", "a", ten), ("b", "c", twenty), ("c", "b", twenty))
    return Switch(SwitchConfig(plugs=plugs, paths=paths, **more))  # type: ignore[arg-type]


def everything(switch: Switch) -> list[tuple[Nanos, int, bytes]]:
    """When each packet under way comes out, at which plug."""
    found = []
    while (due_ns := switch.next_due()) < NEVER:
        if (left := switch.leave(due_ns)) is not None:
            found.append((due_ns, *left))
    return found


def test_a_packet_comes_out_at_its_destination_when_the_path_says() -> None:
    switch = three_in_a_row()
    late, soon = packet(B, C), packet(A, B)
    switch.enter(1, late, 0)
    switch.enter(0, soon, 5 * MS)
    assert switch.leave(15 * MS - 1) is None
    assert everything(switch) == [(15 * MS, 1, soon), (20 * MS, 2, late)]


def test_where_there_is_no_path_the_sender_is_told_at_once() -> None:
    switch = three_in_a_row()
    asked = packet(A, C)
    switch.enter(0, asked, 0)
    ((at_ns, plug, told),) = everything(switch)
    assert (at_ns, plug) == (0, 0)
    assert (told[9], told[12:16], told[16:20]) == (ICMP, address_bytes(C), address_bytes(A))
    assert told[20:22] == bytes([3, 1])
    assert told[28:] == asked[:28]
    assert checksum(told[:20]) == checksum(told[20:]) == 0
    assert switch.refused == 1


def test_nobody_is_told_of_an_error_message_or_a_multicast_that_cannot_be_delivered() -> None:
    told = unreachable(packet(A, C), 1)
    assert told is not None
    assert unreachable(told, 1) is None
    assert unreachable(packet(A, "224.0.0.224"), 1) is None


def test_with_detours_packets_pass_each_path_on_the_way_and_suffer_what_happens_there() -> None:
    switch = three_in_a_row(detours=True)
    switch.enter(0, packet(A, C), 0)
    assert [at_ns for at_ns, _, _ in everything(switch)] == [30 * MS]
    switch.change("b", "c", Conditions(latency_ns=80 * MS))
    switch.enter(0, packet(A, C), 0)
    assert [at_ns for at_ns, _, _ in everything(switch)] == [90 * MS]
    switch.change("b", "c", Conditions(is_cut=True))
    switch.enter(0, packet(A, C), 0)
    assert everything(switch) == []


def test_the_two_directions_may_differ() -> None:
    plugs = (Plug(site="a", address=A), Plug(site="b", address=B))
    there, back = Conditions(latency_ns=10 * MS), Conditions(latency_ns=70 * MS)
    switch = Switch(SwitchConfig(plugs=plugs, paths=(("a", "b", there), ("b", "a", back))))
    switch.enter(0, packet(A, B), 0)
    switch.enter(1, packet(B, A), 0)
    assert [(at_ns, plug) for at_ns, plug, _ in everything(switch)] == [(10 * MS, 1), (70 * MS, 0)]


def test_behind_nat_only_what_was_asked_for_comes_in() -> None:
    switch = three_in_a_row(behind_nat=("b",))
    for protocol in (TCP, UDP):
        switch.enter(0, packet(A, B, protocol=protocol), 0)
        ((_, plug, told),) = everything(switch)
        assert (plug, told[20:22]) == (0, bytes([3, 13]))
        switch.enter(1, packet(B, A, protocol=protocol, ports=(5, 6)), 0)
        switch.enter(0, packet(A, B, protocol=protocol, ports=(6, 5)), 0)
        assert [plug for _, plug, _ in everything(switch)] == [0, 1]
        switch.enter(0, packet(A, B, protocol=protocol, ports=(6, 7)), 0)
        assert [plug for _, plug, _ in everything(switch)] == [0]


def test_a_site_with_two_uplinks_is_reached_at_both_and_each_adds_its_own() -> None:
    slow = Conditions(latency_ns=30 * MS)
    plugs = (
        Plug(site="a", address=A),
        Plug(site="b", uplink="fibre", address=B),
        Plug(site="b", uplink="radio", address=C, out=slow, into=slow),
    )
    ten = Conditions(latency_ns=10 * MS)
    switch = Switch(SwitchConfig(plugs=plugs, paths=(("a", "b", ten), ("b", "a", ten))))
    switch.enter(0, packet(A, B), 0)
    switch.enter(0, packet(A, C), 0)
    switch.enter(2, packet(C, A), 0)
    assert [(at_ns, plug) for at_ns, plug, _ in everything(switch)] == [(10 * MS, 1), (40 * MS, 2), (40 * MS, 0)]
    switch.plug(1, False)
    switch.enter(0, packet(A, B), 0)
    switch.enter(1, packet(B, A), 0)
    assert everything(switch) == []
    switch.plug(1, True)
    switch.enter(0, packet(A, B), 0)
    assert [plug for _, plug, _ in everything(switch)] == [1]


def test_what_bears_an_address_of_somebody_else_does_not_leave() -> None:
    switch = three_in_a_row()
    switch.enter(0, packet(C, B), 0)
    assert switch.next_due() == NEVER


def test_what_is_no_ipv4_is_ignored() -> None:
    switch = three_in_a_row()
    for strange in (b"", b"\x45", b"\x60" + bytes(60)):
        switch.enter(0, strange, 0)
    assert switch.next_due() == NEVER


def test_later_fragments_have_no_ports() -> None:
    whole = packet(A, B)
    later = whole[:6] + b"\x00\x10" + whole[8:]
    assert (flow_of(whole).source_port, flow_of(later).source_port) == (1000, 0)
