"""A reserved flow beside bulk on one link: the share of its messages that are in time, from the first one on.

    python bench/reserved.py                    # 10 Mbit/s, a flow of 1 Mbit/s within 60 ms, 20 Mbit/s of bulk
    python bench/reserved.py --seconds 20 --without

Two brokers run on loopback, the link between them is emulated. Bulk begins before the first message of the flow.
`--without` publishes the same without a reservation; `--burst` allows for a busy machine, where clients are late.
On Linux it prints how long brokers and clients had to wait for a processor: what is later than that is their own.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from overlane.client import Client, Reserve, SubscribeRefused, Traffic, connect
from overlane.local_ports import free_ports

SIZE, PERIOD_S = 1250, 0.01
BULK_BYTES, BULK_BPS = 16_384, 20_000_000
NETWORK = """
[brokers.a]
mqtt = "127.0.0.1:{ports[0]}"
overlay = "127.0.0.1:{ports[1]}"
admin = "127.0.0.1:{ports[2]}"
[brokers.b]
mqtt = "127.0.0.1:{ports[3]}"
overlay = "127.0.0.1:{ports[4]}"
admin = "127.0.0.1:{ports[5]}"
[[links]]
ends = ["a", "b"]
latency = "1ms"
rate = "10Mbit"
emulate = true
[telemetry]
enabled = false
"""


class CpuWaits:
    """The longest that processes were ready to run and had no processor, in intervals of about 20 ms (Linux)."""

    INTERVAL_S = 0.02

    def __init__(self, processes: dict[str, int]) -> None:
        self._files = {name: Path(f"/proc/{number}/schedstat") for name, number in processes.items()}
        self.longest_ms = dict.fromkeys(processes, 0.0)
        self.total_ms = dict.fromkeys(processes, 0.0)

    async def watch(self) -> None:
        before = self._waited_ns()
        while before:
            await asyncio.sleep(self.INTERVAL_S)
            after = self._waited_ns()
            for name, waited_ns in after.items():
                waited_ms = (waited_ns - before[name]) / 1e6
                self.longest_ms[name] = max(self.longest_ms[name], waited_ms)
                self.total_ms[name] += waited_ms
            before = after

    def _waited_ns(self) -> dict[str, int]:
        try:
            return {name: int(file.read_text().split()[1]) for name, file in self._files.items()}
        except OSError:
            return {}

    def __str__(self) -> str:
        told = (f"{name} {one:.1f} ms (all {self.total_ms[name]:.0f})" for name, one in self.longest_ms.items())
        return "longest without a processor: " + ", ".join(told)


def _await_port(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)


async def _reserve(reader: Client, flow: Traffic, latency: str, within_s: float = 30.0) -> object:
    until = time.monotonic() + within_s
    while True:
        try:
            found = reader.subscribe("flow", reserve=Reserve(flow, latency=latency))
            await found.ready()
            return found
        except SubscribeRefused as refused:
            if time.monotonic() > until:
                raise
            print(f"refused, trying again: {refused}", file=sys.stderr)
            await asyncio.sleep(1)


async def _bulk(writer: Client, until: float) -> int:
    sent, began = 0, time.monotonic()
    while (now := time.monotonic()) < until:
        while sent * BULK_BYTES * 8 < (now - began) * BULK_BPS:
            await writer.publish("bulk", bytes(BULK_BYTES))
            sent += 1
        await asyncio.sleep(0.005)
    return sent


async def _flow(writer: Client, until: float) -> int:
    sent, began = 0, time.monotonic()
    while time.monotonic() < until:
        await asyncio.sleep(max(0.0, began + sent * PERIOD_S - time.monotonic()))
        await writer.publish("flow", time.monotonic_ns().to_bytes(8).ljust(SIZE, b"."))
        sent += 1
    return sent


async def _pour(ports: list[int], seconds: float) -> None:
    """Bulk from one client to another, in a process of its own; a line on standard output when it has begun."""
    async with connect(f"127.0.0.1:{ports[0]}") as writer, connect(f"127.0.0.1:{ports[3]}") as sink:
        rest = sink.subscribe("bulk")
        await rest.ready()

        async def drain() -> None:
            async for _ in rest:
                pass

        draining = asyncio.create_task(drain())
        bulk = asyncio.create_task(_bulk(writer, time.monotonic() + seconds))
        await asyncio.sleep(1)
        print("begun", flush=True)
        await bulk
        draining.cancel()


async def _measure(
    ports: list[int], brokers: list[int], flow: Traffic, seconds: float, latency: str, without: bool
) -> None:
    here, there = f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[3]}"
    async with connect(here) as writer, connect(there) as reader:
        await writer.advertise("flow", flow)
        messages = reader.subscribe("flow") if without else await _reserve(reader, flow, latency)
        delays: list[float] = []

        async def read() -> None:
            async for message in messages:  # type: ignore[attr-defined]
                delays.append((time.monotonic_ns() - int.from_bytes(message.body[:8])) / 1e6)

        reading = asyncio.create_task(read())
        pour = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--pour", *map(str, ports), "--seconds", f"{seconds + 2}", stdout=subprocess.PIPE
        )
        assert pour.stdout is not None
        await pour.stdout.readline()
        waits = CpuWaits({"a": brokers[0], "b": brokers[1], "clients": os.getpid()})
        watching = asyncio.create_task(waits.watch())
        sent = await _flow(writer, time.monotonic() + seconds)
        watching.cancel()
        await pour.wait()
        await asyncio.sleep(1)
        reading.cancel()
        held = [] if without else await asyncio.to_thread(_ask, ports[5], "reservations")
        advertised = await asyncio.to_thread(_ask, ports[2], "advertised")
    limit_ms = float(latency.removesuffix("ms"))
    late = [number for number, delay in enumerate(delays) if delay > limit_ms]
    kind = "without a reservation" if without else "reserved"
    print(f"{kind}: {sent} sent, {len(delays)} arrived, in time {(len(delays) - len(late)) / sent:.3f} of all")
    if delays:
        first = delays[0]
        delays.sort()
        median, p99 = delays[len(delays) // 2], delays[int(len(delays) * 0.99)]
        print(
            f"client to client: first {first:.1f} ms, median {median:.1f} ms, p99 {p99:.1f} ms, max {delays[-1]:.1f} ms"
        )
    for one in held:
        bound_ms, max_ms, above = one["bound_ms"], one["delay_max_ms"], one["late"]
        print(f"broker to broker: bound {bound_ms:.1f} ms, max {max_ms:.1f} ms, above the bound {above}")
    print(waits)
    print(f"beyond the profile: {sum(one['excess_messages'] for one in advertised)}; late: {late[:20]}")


def _ask(port: int, what: str) -> list[dict[str, Any]]:
    with urlopen(f"http://127.0.0.1:{port}/reservations", timeout=20) as answer:
        found: list[dict[str, Any]] = json.load(answer)[what]
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the flow lasts")
    parser.add_argument("--latency", default="60ms", help="that the flow asks for")
    parser.add_argument("--without", action="store_true", help="publish without a reservation")
    parser.add_argument("--burst", type=int, default=10, help="messages that may come at once (10)")
    parser.add_argument("--pour", type=int, nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.pour:
        asyncio.run(_pour(given.pour, given.seconds))
        return
    flow = Traffic(size=SIZE, token_bucket=(SIZE / PERIOD_S, given.burst * SIZE))
    ports = free_ports(6)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "network.toml"
        file.write_text(NETWORK.format(ports=ports))
        command = [sys.executable, "-m", "overlane", "broker", str(file), "--name"]
        logs = [(Path(directory) / f"{name}.log").open("wb") for name in "ab"]
        brokers = [
            subprocess.Popen([*command, name, "--data", f"{directory}/{name}"], stdout=log, stderr=log)
            for name, log in zip("ab", logs, strict=True)
        ]
        try:
            for port in (ports[0], ports[3]):
                _await_port(port)
            numbers = [one.pid for one in brokers]
            asyncio.run(_measure(ports, numbers, flow, given.seconds, given.latency, given.without))
        finally:
            for one in brokers:
                one.terminate()
                one.wait(20)


if __name__ == "__main__":
    main()
