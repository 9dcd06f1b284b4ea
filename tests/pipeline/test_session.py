"""The driver of a session: it is there for this machine alone, and whoever waits for it is told when it ends."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from sparks import PARTS, need_java, the_spark, unmarked

pytestmark = [PARTS, pytest.mark.slow]

LISTENING = "0A"

ASKS_FOR_LONG = """
from overlane.pipeline.small_runs import SMALL_RUN_CONF
from overlane.pipeline.session import open_session

with open_session("local[1]", conf=SMALL_RUN_CONF) as spark:
    print("asking", flush=True)
    spark.range(10**13).selectExpr("sum(id)").collect()
"""


def test_who_waits_for_a_driver_that_is_killed_is_told_so() -> None:
    need_java()
    with subprocess.Popen(
        [sys.executable, "-c", ASKS_FOR_LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=unmarked()
    ) as asking:
        try:
            assert asking.stdout is not None
            assert asking.stdout.readline() == "asking\n"
            os.kill(driver_of(asking.pid), signal.SIGKILL)
            _, said = asking.communicate(timeout=120)
        finally:
            asking.kill()  # it would ask for days
    assert asking.returncode == 1
    assert said.splitlines()[-1].endswith("its driver ended unexpectedly")


def test_a_driver_of_ones_own_listens_on_the_loopback_interface_alone() -> None:
    the_spark().range(1).count()
    found = listens_at(driver_of(os.getpid()))
    assert found
    assert {address for address in found if not address.is_loopback} == set()


def driver_of(process: int) -> int:
    children: list[str] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # threads come and go
            children += (task / "children").read_text().split()
    return next(int(child) for child in children if Path(f"/proc/{child}/comm").read_text() == "java\n")


def listens_at(process: int) -> set[IPv4Address | IPv6Address]:
    """The addresses of all sockets on which a process waits for connections."""
    own = set()
    for opened in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # it is at work
            own.add(opened.readlink().name)
    found: set[IPv4Address | IPv6Address] = set()
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{family}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENING and f"socket:[{inode}]" in own:
                found.add(_address(local.partition(":")[0]))
    return found


def _address(text: str) -> IPv4Address | IPv6Address:
    """As the kernel tells it: words of the machine's own byte order."""
    words = bytes.fromhex(text)
    raw = b"".join(words[start : start + 4][::-1] for start in range(0, len(words), 4))
    if len(raw) == 4:
        return IPv4Address(raw)
    address = IPv6Address(raw)
    return address.ipv4_mapped or address
