"""Latency that the emulator of the wide area adds to packets, by the rate of packets.

    python bench/emulator.py [--json] [--loads 0,5000,20000] [--seconds 5]        (as root)

Four sites. Load is sent from `a` to `b`: datagrams of 200 bytes at the given rate, in bursts of a millisecond. From `c`
to `d`, over the same emulator, 200 probes per second are sent; `excess` is their one-way latency above that of the
path, from just before they were sent to the kernel's timestamp of their arrival. At the same time `ping` measures round
trips between `c` and `d`; its excess is above twice the latency of the path. `late` is the number of probes with an
excess of more than a millisecond. Also shown: packets that the emulator carried, and its share of one CPU.

The measuring processes have real-time priority; otherwise their own delays would be attributed to the emulator. Since a
virtual machine may be stopped now and then, a reference process on each CPU sleeps for a millisecond repeatedly, with
the highest priority, from before the emulator starts: its maximum delay is the limit of what any program here can
achieve.

Prints a table and writes bench/out/emulator.json, or prints JSON.
"""

import argparse
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table

from overlane.core.units import MS, SECOND
from overlane.testbed.wide_area import Conditions, WideArea, why_not

OUT = Path(__file__).parent / "out" / "emulator.json"
LOADS = (0, 5_000, 10_000, 20_000, 40_000, 60_000)
LATENCY_NS = 10 * MS
LOAD_BYTES = 200
HEADERS_BYTES = 28
PROBES_PER_S = 200
PORT = 9_000
LATE_MS = 1.0
WIDTH = 140
"""Of what goes to a file."""
PRIORITY, WITNESS_PRIORITY = 20, 90
WITNESS_NS = MS
CALMLY = ("chrt", "--other", "0")
"""What makes the load shall not go first."""
_STAMP = struct.Struct("!Q")
_TIMESTAMP = struct.Struct("@qq")
SO_TIMESTAMPNS = 35  # Linux; the socket module has no name for it


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--loads", default=",".join(map(str, LOADS)), help="packets a second, with commas")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each load")
    parser.add_argument("--send", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--witness", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.send:
        address, rate, seconds = asked.send
        _send_load(address, int(rate), float(seconds))
        return
    if asked.witness:
        processor, seconds = asked.witness
        print(_stood_still(int(processor), float(seconds)))
        return
    if (reason := why_not()) is not None:
        print(f"emulator: nothing measured, {reason}", file=sys.stderr)
        return
    _hurry(PRIORITY)
    rows = [measure(int(load), asked.seconds) for load in asked.loads.split(",")]
    if asked.json:
        print(json.dumps(rows))
    else:
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text(json.dumps(rows, indent=2) + "\n")
        _show(rows)


def _hurry(priority: int) -> None:
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))


def measure(load: int, seconds: float) -> dict[str, float | None]:
    path = Conditions(latency_ns=LATENCY_NS)
    stood_still_ms = _witnessed(seconds)
    with WideArea(["a", "b", "c", "d"], {("a", "b"): path, ("c", "d"): path}) as area:
        with area.inside("b"):
            # Nobody reads it: what comes is dropped by the kernel, after it has come.
            sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sink.bind((area.address("b"), PORT))
        with area.inside("c"):
            prober = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with area.inside("d"):
            probed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        probed.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        probed.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        probed.bind((area.address("d"), PORT))
        prober.connect((area.address("d"), PORT))
        sender = [*CALMLY, sys.executable, __file__, "--send", area.address("b"), str(load), str(seconds + 1.0)]
        process = area.start("a", sender, log=sys.stderr.fileno()) if load else None
        time.sleep(0.5 if load else 0.0)  # until it has begun
        ping = _ping(area, seconds)
        began, cpu_s, before = time.monotonic(), area.emulator_cpu_s(), area.carried()["a", "b"]
        excesses = _probe(prober, probed, seconds)
        took_s = time.monotonic() - began
        carried = area.carried()["a", "b"].packets - before.packets
        busy = (area.emulator_cpu_s() - cpu_s) / took_s
        round_trips = _round_trips(ping)
        if process is not None:
            process.wait(10 + seconds)
        sent = len(excesses)
        return {
            "load_per_s": load,
            "carried_per_s": round(carried / took_s),
            "probes": sent,
            "excess_p50_ms": _at(excesses, 0.5),
            "excess_p99_ms": _at(excesses, 0.99),
            "excess_max_ms": _at(excesses, 1.0),
            "late": sum(one > LATE_MS for one in excesses),
            "ping_p50_ms": _at(round_trips, 0.5) if round_trips else None,
            "ping_p99_ms": _at(round_trips, 0.99) if round_trips else None,
            "ping_max_ms": _at(round_trips, 1.0) if round_trips else None,
            "processor": round(busy, 3),
            "machine_max_ms": stood_still_ms,
        }


def _witnessed(seconds: float) -> float:
    """How late the latest of the witnesses woke up, in milliseconds."""
    witnesses = [
        subprocess.Popen([sys.executable, __file__, "--witness", str(one), str(seconds)], stdout=subprocess.PIPE)
        for one in sorted(os.sched_getaffinity(0))
    ]
    return max(float(one.communicate(timeout=60 + seconds)[0]) for one in witnesses)


def _stood_still(processor: int, seconds: float) -> float:
    os.sched_setaffinity(0, {processor})
    _hurry(WITNESS_PRIORITY)
    end_ns = time.monotonic_ns() + int(seconds * SECOND)
    latest_ns = 0
    while (began_ns := time.monotonic_ns()) < end_ns:
        time.sleep(WITNESS_NS / SECOND)
        latest_ns = max(latest_ns, time.monotonic_ns() - began_ns - WITNESS_NS)
    return round(latest_ns / MS, 3)


def _send_load(address: str, rate: int, seconds: float) -> None:
    outlet = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    outlet.connect((address, PORT))
    body = bytes(LOAD_BYTES - HEADERS_BYTES)
    start = time.monotonic()
    sent = 0
    while (passed := time.monotonic() - start) < seconds:
        while sent < rate * passed:
            outlet.send(body)
            sent += 1
        time.sleep(0.001)


def _probe(prober: socket.socket, probed: socket.socket, seconds: float) -> list[float]:
    """How much longer than the path's latency each probe took, in milliseconds."""
    start = time.monotonic()
    count = int(PROBES_PER_S * seconds)
    for number in range(count):
        time.sleep(max(0.0, start + number / PROBES_PER_S - time.monotonic()))
        prober.send(_STAMP.pack(time.time_ns()))
    time.sleep(0.5)
    probed.setblocking(False)
    excesses = []
    while True:
        try:
            body, ancillary, _, _ = probed.recvmsg(64, 64)
        except BlockingIOError:
            break
        whole_s, rest_ns = _TIMESTAMP.unpack(ancillary[0][2])
        (sent_ns,) = _STAMP.unpack(body)
        excesses.append((whole_s * SECOND + rest_ns - sent_ns - LATENCY_NS) / MS)
    if len(excesses) != count:
        print(f"{count - len(excesses)} of {count} probes did not come", file=sys.stderr)
    return sorted(excesses)


def _ping(area: WideArea, seconds: float) -> "subprocess.Popen[bytes] | None":
    if shutil.which("ping") is None:
        return None
    argv = ["ping", "-i", "0.01", "-c", str(int(100 * seconds)), area.address("d")]
    return area.start("c", argv, stdout=subprocess.PIPE)


def _round_trips(ping: "subprocess.Popen[bytes] | None") -> list[float]:
    """How much longer than twice the path's latency each round trip took, in milliseconds."""
    if ping is None:
        return []
    text = ping.communicate(timeout=60)[0].decode()
    times = [float(line.partition("time=")[2].split()[0]) for line in text.splitlines() if "time=" in line]
    return sorted(one - 2 * LATENCY_NS / MS for one in times)


def _at(ordered: Sequence[float], share: float) -> float:
    return round(ordered[max(0, min(len(ordered) - 1, int(share * len(ordered) + 0.999_999) - 1))], 3)


def _show(rows: Sequence[dict[str, float | None]]) -> None:
    table = Table(
        title=f"path of {LATENCY_NS / MS:g} ms; excess in ms", title_justify="left", box=None, padding=(0, 1, 0, 0)
    )
    for column in rows[0]:
        table.add_column(column.removesuffix("_ms").replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*("-" if value is None else f"{value:g}" for value in row.values()))
    console = Console()
    (console if console.is_terminal else Console(width=WIDTH)).print(table)


if __name__ == "__main__":
    main()
