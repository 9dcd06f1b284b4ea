"""Clients of a domain at the edge that has their session, and at another: what the way there costs.

The time until a client with a kept session is connected, and from PUBLISH to PUBACK of QoS 1 after that. All on one
machine: what is measured is processor time and the wait for it, not a network.
"""

import asyncio
import statistics
import time
from pathlib import Path

import overlane.client
from _tiers import Ensemble, Tiers

CONFIG = "[routing]\nbrokers_min = 1\nbrokers_max = 1\n"
PATIENCE_S = 60.0


def run_passing(folder: Path, ensemble: Ensemble, rounds: int) -> None:
    tiers = Tiers(folder, ensemble, "/passing")
    try:
        asyncio.run(tiers.push(folder, CONFIG))
        for name, role, domain in (("r", "routing", "core"), ("one", "edge", "west"), ("two", "edge", "west")):
            tiers.add(name, role, domain)
        asyncio.run(_measure(tiers, rounds))
    finally:
        tiers.end()


async def _measure(tiers: Tiers, rounds: int) -> None:
    await tiers.ready()
    one, two = (tiers.brokers[name].mqtt for name in ("one", "two"))
    await _until_shared(one, two)
    print(f"{'':10} {'CONNECT p50':>12} {'p99':>8} {'PUBLISH p50':>12} {'p99':>8}   ms, {rounds} rounds")
    for way, address in (("direct", one), ("passed on", two)):
        connects, publishes = [], []
        for _ in range(rounds):
            client = overlane.client.connect(address, client_id="measured", session_expiry="1h", alternatives=False)
            begin = time.perf_counter()
            async with client:
                connects.append(time.perf_counter() - begin)
                assert client.session_present
                await client.publish("measured", qos=1)
                begin = time.perf_counter()
                await client.publish("measured", qos=1)
                publishes.append(time.perf_counter() - begin)
        figures = " ".join(
            f"{_percentile(times, 50):12.2f} {_percentile(times, 99):8.2f}" for times in (connects, publishes)
        )
        print(f"{way:10} {figures}", flush=True)


async def _until_shared(one: str, two: str) -> None:
    """A session that is made at one edge is found at the other."""
    until = time.monotonic() + PATIENCE_S
    async with overlane.client.connect(one, client_id="measured", session_expiry="1h"):
        pass
    while time.monotonic() < until:
        async with overlane.client.connect(two, client_id="measured", session_expiry="1h") as client:
            if client.session_present:
                break
        await asyncio.sleep(0.1)
    # Where the second edge did not know the first one yet, it has made one of its own: the later counts.
    async with (
        overlane.client.connect(one, client_id="measured", session_expiry="1h", clean_start=True),
        overlane.client.connect(one) as probe,
    ):
        await probe.publish("measured", qos=1)


def _percentile(times_s: list[float], percent: int) -> float:
    return 1000 * statistics.quantiles(times_s, n=100)[percent - 1]
