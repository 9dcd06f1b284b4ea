"""HTB classes for marked links: the commands, and what the kernel does with them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from overlane.network import parse_network
from overlane.network.htb import htb_commands, marked_rates

NETWORK = """
[brokers.a]
[brokers.b]
[brokers.c]
[brokers.d]
[[links]]
ends = ["a", "b"]
latency = "1ms"
rate = "1Mbit"
dscp = "EF"
[[links]]
ends = ["a", "c"]
latency = "1ms"
rate = "2Mbit"
dscp = "EF"
back = { latency = "1ms", rate = "3Mbit" }
[[links]]
ends = ["a", "d"]
latency = "1ms"
rate = "1Mbit"
[[links]]
ends = ["b", "d"]
latency = "1ms"
rate = "500kbit"
dscp = "AF41"
"""
COMMANDS = """\
tc qdisc replace dev eth0 root handle 1: htb default 2
tc class add dev eth0 parent 1: classid 1:1 htb rate 10000000bit
tc class add dev eth0 parent 1:1 classid 1:2 htb rate 7000000bit ceil 10000000bit prio 1
tc class add dev eth0 parent 1:1 classid 1:3e htb rate 3000000bit ceil 10000000bit prio 0
tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dsfield 0xb8 0xfc flowid 1:3e
tc filter add dev eth0 parent 1: protocol ipv6 prio 2 u32 match ip6 priority 0xb8 0xfc flowid 1:3e
"""


def test_links_with_one_mark_have_a_class_together() -> None:
    network = parse_network(NETWORK)
    assert marked_rates(network, "a") == {46: 3_000_000}
    assert marked_rates(network, "b") == {46: 1_000_000, 34: 500_000}
    assert marked_rates(network, "c") == {46: 3_000_000}
    assert "\n".join(htb_commands(network, "a", "eth0", 10_000_000)) + "\n" == COMMANDS


def test_nothing_marked_and_no_room_for_others_are_refused() -> None:
    network = parse_network(NETWORK.replace('dscp = "AF41"', ""))
    with pytest.raises(ValueError, match="d has no link with both rate and dscp"):
        htb_commands(network, "d", "eth0", 10_000_000)
    with pytest.raises(ValueError, match="3,000,000 bit/s together"):
        htb_commands(network, "a", "eth0", 3_050_000)


def run(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "overlane", "reservations", str(file), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_prints_them_and_names_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(NETWORK)
    assert run(file, "--htb", "eth0=10Mbit", "--name", "a").stdout == COMMANDS
    nobody = run(file, "--htb", "eth0=10Mbit")
    assert (nobody.returncode, "expected a broker of" in nobody.stderr) == (2, True)
    strange = run(file, "--htb", "eth0; reboot=10Mbit", "--name", "a")
    assert (strange.returncode, strange.stdout, "expected an interface and its rate" in strange.stderr) == (2, "", True)


MARKED_FIRST = """
import fcntl, json, os, socket, struct, subprocess, sys
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH", b"t0", 0x1001))  # TUNSETIFF: IFF_TUN | IFF_NO_PI
for line in ["ip addr add 10.9.0.1/24 dev t0", "ip link set t0 up", *sys.stdin.read().splitlines()]:
    subprocess.run(line.split(), check=True)
bulk, marked = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
marked.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0xb8)
for number in range(80):  # more would block until some have left
    bulk.sendto(bytes(1000), ("10.9.0.2", 9))
for number in range(10):
    marked.sendto(bytes(1000), ("10.9.0.2", 9))
order = []
while order.count(0xb8) < 10:
    packet = os.read(tun, 2000)
    if packet[0] >> 4 == 4:
        order.append(packet[1])
print(json.dumps(order))
"""


@pytest.mark.slow
def test_marked_packets_leave_before_others_that_came_first() -> None:
    probe = "ip tuntap add dev t1 mode tun && ip link set t1 up && tc qdisc add dev t1 root htb"
    for tool in ("tc", "ip", "unshare"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    apart = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*apart, "sh", "-c", probe], capture_output=True, check=False).returncode:
        pytest.skip("needs namespaces, TUN devices and HTB")
    commands = "\n".join(htb_commands(parse_network(NETWORK), "a", "t0", 4_000_000))
    done = subprocess.run(
        [*apart, sys.executable, "-c", MARKED_FIRST],
        input=commands,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    order = json.loads(done.stdout)
    others_before_last = order.count(0)
    assert others_before_last < 40, order
