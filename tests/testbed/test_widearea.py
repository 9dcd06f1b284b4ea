"""Sites in namespaces with paths between them: what sockets see of it, and that nothing is left behind."""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ground import needs_a_wide_area

from overlane.core.units import MS
from overlane.errors import Unavailable
from overlane.testbed import namespaces
from overlane.testbed.wide_area import Conditions, Site, Uplink, WideArea
from waiting import eventually

pytestmark = needs_a_wide_area

PORT = 5_000
PATIENCE_S = 60.0


def listener(area: WideArea, site: str) -> socket.socket:
    with area.inside(site):
        return socket.create_server(("0.0.0.0", PORT))


def caller(area: WideArea, site: str) -> socket.socket:
    with area.inside(site):
        made = socket.socket()
    made.settimeout(PATIENCE_S)
    return made


def datagrams(area: WideArea, site: str) -> socket.socket:
    with area.inside(site):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(PATIENCE_S)
    return made


@pytest.fixture
def pair() -> Iterator[WideArea]:
    with WideArea(["a", "b"], {("a", "b"): Conditions(latency_ns=20 * MS)}) as area:
        yield area


def test_a_datagram_takes_at_least_the_latency_and_both_ways_add_up(pair: WideArea) -> None:
    here, there = datagrams(pair, "a"), datagrams(pair, "b")
    there.bind(("0.0.0.0", PORT))
    began_ns = time.monotonic_ns()
    here.sendto(b"hello", (pair.address("b"), PORT))
    body, sender = there.recvfrom(100)
    one_way_ns = time.monotonic_ns() - began_ns
    there.sendto(body, sender)
    assert here.recv(100) == b"hello"
    assert sender[0] == pair.address("a")
    assert one_way_ns >= 19 * MS
    assert time.monotonic_ns() - began_ns >= 39 * MS
    assert pair.carried()["a", "b"].packets == 1
    assert [direction.bytes for direction in pair.carried().values()] == [28 + 5, 28 + 5]


def test_one_direction_alone_is_changed_and_restored(pair: WideArea) -> None:
    here, there = datagrams(pair, "a"), datagrams(pair, "b")
    there.bind(("0.0.0.0", PORT))
    here.bind(("0.0.0.0", PORT))
    pair.change("a", "b", is_cut=True, one_way=True)
    here.sendto(b"lost", (pair.address("b"), PORT))
    there.sendto(b"back", (pair.address("a"), PORT))
    assert here.recv(100) == b"back"
    assert pair.carried()["a", "b"].cut == 1
    pair.restore("a", "b")
    here.sendto(b"there", (pair.address("b"), PORT))
    assert there.recv(100) == b"there"


def test_tcp_carries_everything_over_a_path_that_loses_packets(pair: WideArea) -> None:
    pair.change("a", "b", latency_ns=1 * MS, loss=0.05)
    server, client = listener(pair, "b"), caller(pair, "a")
    client.connect((pair.address("b"), PORT))
    accepted, _ = server.accept()
    sent = os.urandom(200_000)
    process = os.fork()
    if process == 0:
        client.sendall(sent)
        os._exit(0)
    client.close()
    received = b"".join(iter(lambda: accepted.recv(65_536), b""))
    os.waitpid(process, 0)
    assert received == sent
    assert pair.carried()["a", "b"].lost > 0


def test_a_full_queue_drops_what_comes_last() -> None:
    narrow = Conditions(rate_bps=100_000, queue_bytes=10_000)
    with WideArea(["a", "b"], {("a", "b"): narrow}) as area:
        here, there = datagrams(area, "a"), datagrams(area, "b")
        there.bind(("0.0.0.0", PORT))
        for number in range(100):
            here.sendto(number.to_bytes() + bytes(971), (area.address("b"), PORT))  # 1000 bytes on the wire
        eventually(
            lambda: (one := area.carried()["a", "b"]).overflowed + one.packets == 100,
            "all packets have come or were dropped",
            PATIENCE_S,
        )
        # Ten wait, the first leaves at once, and a slow machine may let one or the other leave meanwhile.
        assert 10 <= area.carried()["a", "b"].packets < 40
        assert [there.recv(1_000)[0] for _ in range(10)] == list(range(10))


def test_sites_without_a_path_are_told_that_there_is_none_unless_detours_are_wanted() -> None:
    path = Conditions(latency_ns=1 * MS)
    paths = {("a", "b"): path, ("b", "c"): path}
    for detours in (False, True):
        with WideArea(["a", "b", "c"], paths, detours=detours) as area:
            server, client = listener(area, "c"), caller(area, "a")
            if detours:
                client.connect((area.address("c"), PORT))
                server.accept()
            else:
                with pytest.raises(OSError, match="No route") as refused:
                    client.connect((area.address("c"), PORT))
                assert refused.value.errno == errno.EHOSTUNREACH


def test_a_site_behind_nat_calls_and_is_not_called() -> None:
    with WideArea([Site("a", is_behind_nat=True), "b"], {("a", "b"): Conditions(latency_ns=1 * MS)}) as area:
        inside, outside = listener(area, "a"), listener(area, "b")
        with pytest.raises(OSError, match="No route"):
            caller(area, "b").connect((area.address("a"), PORT))
        caller(area, "a").connect((area.address("b"), PORT))
        outside.accept()
        inside.close()
        assert area.refused() > 0


def test_an_uplink_takes_over_when_the_other_is_unplugged_and_the_first_is_used_again_when_it_is_back() -> None:
    site = Site("a", (Uplink("fibre"), Uplink("radio", *[Conditions(latency_ns=30 * MS)] * 2)))
    with WideArea([site, "b"], {("a", "b"): Conditions(latency_ns=1 * MS)}) as area:
        server = listener(area, "b")
        addresses = area.addresses("a")

        def seen_from_b() -> str:
            """The address under which a new connection of a's comes, or none if it does not."""
            client = caller(area, "a")
            # A kernel takes a moment to notice, and a connection begun before that never comes.
            client.settimeout(2.0)
            try:
                client.connect((area.address("b"), PORT))
            except TimeoutError:
                return ""
            accepted, (address, _) = server.accept()
            accepted.close()
            return str(address)

        assert seen_from_b() == addresses[0]
        area.unplug("a", "fibre")
        eventually(lambda: seen_from_b() == addresses[1], "the radio is used", PATIENCE_S)
        reached = listener(area, "a")
        caller(area, "b").connect((addresses[1], PORT))
        reached.accept()
        area.plug_in("a", "fibre")
        eventually(lambda: seen_from_b() == addresses[0], "the fibre is used again", PATIENCE_S)


def test_processes_run_at_their_site_and_end_with_the_wide_area(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with WideArea(["a"], {}) as area:
        area.start("a", ["ip", "-o", "-4", "addr", "show", "wan0"], log=log).wait()
        sleeper = area.start("a", ["sleep", "1000"])
        stubborn = area.start("a", ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"], log=log)
        eventually(lambda: "deaf" in log.read_text(), "both have begun", PATIENCE_S)
        names = [area.namespace("a")]
    assert area.address("a") in log.read_text()
    assert (sleeper.poll(), stubborn.poll()) == (-signal.SIGTERM, -signal.SIGKILL)
    assert not any(namespaces.path_of(name).exists() for name in names)


def test_a_wide_area_that_is_closed_says_so() -> None:
    with WideArea(["a", "b"], {("a", "b"): Conditions()}) as area:
        pass
    with pytest.raises(Unavailable, match="not open"):
        area.change("a", "b", loss=0.5)
    area.close()


# Whatever happens

OWNER = """
import sys, time
from overlane.testbed.wide_area import Conditions, WideArea
with WideArea(["a", "b"], {("a", "b"): Conditions()}) as area:
    area.start("a", ["sleep", "1000"])
    print(area._emulator.pid, flush=True)
    time.sleep(1000)
"""


Owner = tuple["subprocess.Popen[str]", int]


@pytest.fixture
def owner() -> Iterator[Owner]:
    """A process with a wide area, and the process of its emulator."""
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def of(process: "subprocess.Popen[str]") -> list[Path]:
    return list(namespaces.DIRECTORY.glob(f"overlane-{process.pid}.*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind_however_the_owner_ends(owner: Owner, number: signal.Signals) -> None:
    process, emulator = owner
    assert len(of(process)) == 2
    process.send_signal(number)
    process.wait()
    eventually(lambda: not of(process) and not Path(f"/proc/{emulator}").exists(), "everything is removed", PATIENCE_S)
    assert not [name for name in namespaces.remove_leftovers() if name.startswith(f"overlane-{process.pid}.")]


def test_what_even_a_killed_emulator_left_behind_is_removed_by_the_next_wide_area(owner: Owner) -> None:
    process, emulator = owner
    names = [path.name for path in of(process)]
    eventually(lambda: len(namespaces.processes_in(names)) == 1, "the sleeper is there", PATIENCE_S)
    (sleeper,) = namespaces.processes_in(names)
    os.kill(emulator, signal.SIGKILL)
    process.kill()
    process.wait()
    with WideArea(["a"], {}):
        assert of(process) == []
        eventually(lambda: not Path(f"/proc/{sleeper}").exists(), "the sleeper is gone", PATIENCE_S)


def test_namespaces_of_owners_that_live_are_left_alone(owner: Owner) -> None:
    process, _ = owner
    assert len(of(process)) == 2
    namespaces.remove_leftovers()
    assert len(of(process)) == 2
