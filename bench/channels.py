"""Topics of many sets of subscribers on two shared routes: what brokers drop, beside what the mapping promises.

    python bench/channels.py                 # the subscriptions of the IndiQoS report, both sets of rates
    python bench/channels.py --routes none   # a route for each set of subscribers

Eight brokers on loopback, each a process, in a star. Rates are the report's times `--scale`. The broker of the
publisher measures them and maps the topics; then the messages that nobody has asked for are counted where they are
dropped.
"""

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from overlane.client import Client, connect
from overlane.local_ports import free_ports
from overlane.planning.channels import Advertisement, plan_channels
from overlane.turn.channel_review import UNICAST_WEIGHT

SUBSCRIBERS = {"a": "ADE", "b": "BC", "c": "AE", "d": "BCEF", "e": "DE", "f": "BCF", "g": "DE"}
RATES_BPS: tuple[dict[str, float], ...] = (
    {"a": 800, "b": 80, "c": 500, "d": 20, "e": 600, "f": 100, "g": 1000},
    {"a": 20, "b": 30, "c": 1000, "d": 50, "e": 60, "f": 25, "g": 100},
)
NODES = "ABCDEF"
MESSAGE_BITS = 1000
MAPPED_WITHIN_S = 120.0


class Brokers:
    def __init__(self, directory: Path, routes: str) -> None:
        ports = free_ports(3 * (len(NODES) + 2))
        self.names = ("p", "r", *NODES)
        self.mqtt, self.admin = {}, {}
        text = ""
        for place, name in enumerate(self.names):
            self.mqtt[name], overlay, self.admin[name] = ports[3 * place : 3 * place + 3]
            text += f'[brokers.{name}]\nmqtt = "127.0.0.1:{self.mqtt[name]}"\noverlay = "127.0.0.1:{overlay}"\n'
            text += f'admin = "127.0.0.1:{self.admin[name]}"\n'
        text += "".join(f'[[links]]\nends = ["{one}", "r"]\nlatency = "1ms"\n' for one in ("p", *NODES))
        limit = '"none"' if routes == "none" else routes
        self.file = directory / "network.toml"
        self.file.write_text(f"{text}[limits]\nroutes = {limit}\n[telemetry]\nenabled = false\n")
        self.log = directory / "p.log"
        self._processes = [self._start(directory, name) for name in self.names]

    def _start(self, directory: Path, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "overlane", "broker", str(self.file), "--name", name]
        with (directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen([*command, "--data", str(directory / name)], stdout=log, stderr=log)

    async def until_listening(self) -> None:
        for port in self.mqtt.values():
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    await asyncio.sleep(0.1)

    def end(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(20)

    def counters(self, name: str) -> dict[str, int]:
        with urlopen(f"http://127.0.0.1:{self.admin[name]}/status", timeout=10) as answer:
            status: dict[str, Any] = json.load(answer)
        return dict(status["overlay"])

    def unsolicited(self) -> int:
        """Messages."""
        return sum(self.counters(name)["unsolicited_messages"] for name in NODES)

    @property
    def is_mapped(self) -> bool:
        return "sets of brokers share" in self.log.read_text()


async def publish(writer: Client, rates_bps: dict[str, float], sent: dict[str, int]) -> None:
    began = time.monotonic()
    while True:
        for topic, rate_bps in rates_bps.items():
            while sent[topic] * MESSAGE_BITS < (time.monotonic() - began) * rate_bps:
                await writer.publish(topic, bytes(MESSAGE_BITS // 8))
                sent[topic] += 1
        await asyncio.sleep(0.01)


async def measure(brokers: Brokers, rates_bps: dict[str, float], seconds: float, is_mapped: bool) -> dict[str, Any]:
    received = dict.fromkeys(NODES, 0)

    async def count(name: str, reader: Client, topics: list[str], ready: asyncio.Event) -> None:
        subscriptions = [reader.subscribe(topic) for topic in topics]
        for one in subscriptions:
            await one.ready()
        ready.set()

        async def each(one: Any) -> None:
            async for _ in one:
                received[name] += 1

        await asyncio.gather(*(each(one) for one in subscriptions))

    clients = {name: connect(f"127.0.0.1:{brokers.mqtt[name]}") for name in ("p", *NODES)}
    async with asyncio.TaskGroup() as group:
        opened = {name: await client.__aenter__() for name, client in clients.items()}
        tasks = []
        for name in NODES:
            ready = asyncio.Event()
            topics = [topic for topic, names in SUBSCRIBERS.items() if name in names]
            tasks.append(group.create_task(count(name, opened[name], topics, ready)))
            await ready.wait()
        await asyncio.sleep(2)  # until the publisher's broker knows of all
        sent = dict.fromkeys(SUBSCRIBERS, 0)
        tasks.append(group.create_task(publish(opened["p"], rates_bps, sent)))
        until = time.monotonic() + MAPPED_WITHIN_S
        while is_mapped and not brokers.is_mapped and time.monotonic() < until:
            await asyncio.sleep(0.5)
        await asyncio.sleep(3)
        before, began, sent_before = brokers.unsolicited(), time.monotonic(), dict(sent)
        await asyncio.sleep(seconds)
        after, elapsed_s = brokers.unsolicited(), time.monotonic() - began
        offered = sum(sent[topic] - sent_before[topic] for topic in sent)
        tasks.pop().cancel()
        await asyncio.sleep(2)
        for task in tasks:
            task.cancel()
        for client in clients.values():
            await client.__aexit__(None, None, None)
    wanted = sum(count * len(SUBSCRIBERS[topic]) for topic, count in sent.items())
    return {
        "offered_bps": offered * MESSAGE_BITS / elapsed_s,
        "wasted_bps": (after - before) * MESSAGE_BITS / elapsed_s,
        "missing": wanted - sum(received.values()),
    }


async def run(routes: str, rates_bps: dict[str, float], seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        brokers = Brokers(Path(directory), routes)
        try:
            await brokers.until_listening()
            return await measure(brokers, rates_bps, seconds, routes != "none")
        finally:
            brokers.end()


def planned(routes: str, rates_bps: dict[str, float]) -> tuple[float, float]:
    """What the mapping promises at these rates: unsolicited, and sent one by one."""
    if routes == "none":
        return 0.0, 0.0
    advertisements = [Advertisement(name, rates_bps[name], tuple(names)) for name, names in SUBSCRIBERS.items()]
    cost = plan_channels(advertisements, int(routes), UNICAST_WEIGHT).cost
    return cost.waste_bps, cost.unicast_bps / UNICAST_WEIGHT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--routes", default="2", help='routes with several destinations, or "none" (default: 2)')
    parser.add_argument("--seconds", type=float, default=20.0, help="how long it is measured (default: 20)")
    parser.add_argument("--scale", type=float, default=100.0, help="rates are the report's times this (default: 100)")
    parser.add_argument("--sets", default="1,2", help="sets of rates (default: 1,2)")
    options = parser.parse_args()
    print("set   offered  unsolicited   planned: unsolicited  one by one   missing   (bit/s of the report)")
    for number in map(int, options.sets.split(",")):
        rates_bps = {topic: rate * options.scale for topic, rate in RATES_BPS[number - 1].items()}
        found = asyncio.run(run(options.routes, rates_bps, options.seconds))
        waste, apart = planned(options.routes, RATES_BPS[number - 1])
        row = f"{found['offered_bps'] / options.scale:9.0f}{found['wasted_bps'] / options.scale:13.0f}"
        print(f"{number:3}{row}{waste:23.0f}{apart:12.0f}{found['missing']:10}")


if __name__ == "__main__":
    main()
