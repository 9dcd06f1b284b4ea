"""Takeover of lost hosts, and what mirrors cost. Real brokers, three ZooKeeper servers, all on this machine.

    python bench/takeover.py                        # everything
    python bench/takeover.py --only takeover        # one to five brokers at once: killed with their disks, stopped
    python bench/takeover.py --only takeover --kinds stop --counts 1,5
    python bench/takeover.py --only costs           # bytes to watch a broker; bytes of a queue and of a route
    python bench/takeover.py --only throughput      # durable QoS 1 with and without a mirror, in turns
    python bench/takeover.py --only peers           # NATS JetStream and RabbitMQ quorum queues, one server lost

The gap of a broker is the longest time without a delivery to a persistent subscriber, from before the fault until
messages flow again; clients dial one address, behind which the broker is found where ZooKeeper says. Lost and doubled
messages are counted. A backup host has the mirrors of all brokers.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import overlane.client
from _domain import Domain, Forwarder, Load, domain
from _priority import go_first
from _side_by_side import Among
from _takeover_peers import PEERS, Peer, Sent
from _tiers import Ensemble

BROKERS = ("west-1", "west-2", "west-3", "west-4", "west-5")
BACKUP = "spare"
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
PARTS = ("takeover", "costs", "throughput", "peers")
PATIENCE_S = 120.0
PEER_S = 40.0
"""How long is waited for messages of a peer after the fault; the gap that is shown where none come."""
COUNTS = ("1", "2", "3", "4", "5")
"""Of brokers at once."""
ROUNDS = 4
SECONDS = 4.0
WRITERS, IN_FLIGHT = 4, 50
QUEUES = 100
SETTLED_BYTES = 2_000
"""A link that grows by less in half a second has told what there is to tell."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=Among(PARTS), default=PARTS, help=f"of {', '.join(PARTS)}, with commas between")
    parser.add_argument("--silence", default="600ms", help="after which a silent broker is continued elsewhere")
    parser.add_argument("--kinds", type=Among(SIGNALS), default=tuple(SIGNALS), help="kill, stop, or both with a comma")
    parser.add_argument("--counts", type=Among(COUNTS), default=COUNTS, help="how many at once, such as 1,5")
    parser.add_argument("--nice", type=int, default=0, help="priority of everything, where others use the machine")
    arguments = parser.parse_args()
    go_first(arguments.nice)
    parts = set(arguments.only)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "peers" in parts:
            peers(folder)
        if parts == {"peers"}:
            return
        ensemble = Ensemble(folder / "zookeeper")
        ensemble.start()
        try:
            if "takeover" in parts:
                for kind in arguments.kinds:
                    for count in map(int, arguments.counts):
                        takeover(folder, ensemble, kind, count, arguments.silence)
            if "costs" in parts:
                costs(folder, ensemble, arguments.silence)
            if "throughput" in parts:
                throughput(folder, ensemble)
        finally:
            ensemble.stop()


def _load() -> str:
    return f"{os.getloadavg()[0]:.0f}"


# Takeover


def takeover(folder: Path, ensemble: Ensemble, kind: str, count: int, silence: str) -> None:
    place = folder / f"{kind}-{count}"
    place.mkdir()
    with domain(place, ensemble, (), path=f"/{kind}-{count}", silence=silence) as made:
        # Where three or more fail, nobody is left who could be asked.
        brokers = BROKERS[: max(3, count)]
        asyncio.run(_start(made, brokers))
        for name in brokers:
            asyncio.run(made.until_set(name, name, 1))
        outcome = asyncio.run(_fail(made, kind, brokers[:count]))
        served = _served_s(made, outcome.since_s)
    print(
        f"{kind} {count} at once: gap {_shown(outcome.gaps)} s; {outcome.lost} acknowledged lost,"
        f" {outcome.twice} of QoS 2 twice; load average {_load()}\n"
        f"  the mirror is to serve after {_shown(served)} s, clients find it after {_shown(outcome.moved)} s",
        flush=True,
    )


def _shown(seconds: list[float]) -> str:
    return ", ".join(f"{one:.2f}" for one in sorted(seconds))


def _served_s(made: Domain, since_s: float) -> list[float]:
    """After the fault, as the log of the backup says."""
    lines = (made.folder / f"{BACKUP}.log").read_text().splitlines()
    times = [one.split()[0] for one in lines if "runs here from epoch" in one]
    return [datetime.fromisoformat(one).timestamp() - since_s for one in times]


@dataclass
class Outcome:
    since_s: float
    """When the fault was, since 1970."""
    gaps: list[float]
    moved: list[float]
    """After how long the name of a broker leads to another address."""
    lost: int
    twice: int


async def _start(made: Domain, brokers: tuple[str, ...]) -> None:
    """The backup first: copies stay where they are."""
    made.add(BACKUP, "backup")
    await made.until_host(BACKUP)
    for name in brokers:
        made.add(name)


async def _fail(made: Domain, kind: str, victims: tuple[str, ...]) -> Outcome:
    async with AsyncExitStack() as stack:
        loads = []
        forwarders = [Forwarder(made, name) for name in victims]
        for forwarder, name in zip(forwarders, victims, strict=True):
            address = await stack.enter_async_context(forwarder.running())
            loads.append(await stack.enter_async_context(Load(address, f"{name}-").running()))
        since, since_s = time.monotonic(), time.time()
        if kind == "kill":
            await asyncio.to_thread(made.lose, *victims)
        for name in victims if kind == "stop" else ():
            made.signal(name, signal.SIGSTOP)
        await asyncio.gather(*(load.until_more(40) for load in loads))
        until = time.monotonic()
        gaps = [_gap_s(load, since, until) for load in loads]
        moved = [at - since for forwarder in forwarders for at in forwarder.moved_at[:1]]
    lost = sum(len(one) for load in loads for one in load.lost().values())
    return Outcome(since_s, gaps, moved, lost, sum(one.twice(2) for one in loads))


def _gap_s(load: Load, since: float, until: float) -> float:
    times = sorted(at for arrived in load.arrived.values() for _, at in arrived if since <= at <= until)
    return max(after - before for before, after in pairwise([since, *times]))


# What it costs


def costs(folder: Path, ensemble: Ensemble, silence: str) -> None:
    """Bytes as brokers count them: without headers of TCP and IP."""
    place = folder / "costs"
    place.mkdir()
    with domain(place, ensemble, (), path="/costs", silence=silence) as made:
        asyncio.run(_start(made, BROKERS[:2]))
        asyncio.run(_measure_costs(made))


async def _measure_costs(made: Domain) -> None:
    victim, neighbour = BROKERS[:2]
    await made.until_set(victim, victim, 1)
    await asyncio.sleep(5)
    before, since = _replicated(made, victim), time.monotonic()
    await asyncio.sleep(10)
    watching = (sum(_replicated(made, victim)) - sum(before)) / (time.monotonic() - since)
    print(f"watching an idle broker: {watching:.0f} B/s in both directions; load average {_load()}", flush=True)
    address = await made.address(victim)
    before, since = _replicated(made, victim), time.monotonic()
    for number in range(QUEUES):
        async with (
            overlane.client.connect(address, client_id=f"queue-{number}", session_expiry="1h") as client,
            client.subscribe(f"queue/{number}", qos=1),
        ):
            pass
    await asyncio.sleep(1)
    sent = _replicated(made, victim)[1] - before[1] - watching / 2 * (time.monotonic() - since)
    print(f"a queue: {sent / QUEUES:.0f} B to its mirror", flush=True)
    epoch = (await made.until_set(victim, victim, 1)).epoch
    made.lose(victim)
    await made.address(victim, epoch + 1)
    link = await _settled_link(made, neighbour, victim)
    print(f"a route: {link / QUEUES:.0f} B over the link to a neighbour of {QUEUES} routes", flush=True)


def _replicated(made: Domain, name: str) -> tuple[int, int]:
    view = _admin(made, name, "/recovery")
    return view["bytes_in"], view["bytes_out"]


async def _settled_link(made: Domain, at: str, peer: str) -> int:
    """Bytes in both directions of a link that is new, when it has told all."""
    until, before = time.monotonic() + PATIENCE_S, -1
    while time.monotonic() < until:
        (view,) = [one for one in _admin(made, at, "/links")["items"] if one["peer"] == peer]
        total: int = view["bytes_in"] + view["bytes_out"]
        if view["state"] == "up" and before >= 0 and total - before < SETTLED_BYTES:
            return total
        before = total
        await asyncio.sleep(0.5)
    raise RuntimeError(f"the link of {at} with {peer} does not settle")


def _admin(made: Domain, name: str, path: str) -> dict[str, Any]:
    with urlopen(f"http://127.0.0.1:{made.hosts[name].ports[2]}{path}", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


# Peers


def peers(folder: Path) -> None:
    for kind in SIGNALS:
        for make in PEERS:
            peer = make()
            if (missing := peer.missing()) is not None:
                print(f"{peer.name}: {missing}")
                continue
            try:
                peer.start(folder / f"{make.__name__}-{kind}")
                gap, lost = asyncio.run(_fail_peer(peer, kind))
            finally:
                peer.end()
            print(f"{peer.name}, {kind}: gap {gap:.2f} s; {lost} acknowledged lost; load average {_load()}", flush=True)


async def _fail_peer(peer: Peer, kind: str) -> tuple[float, int]:
    """The server that leads is lost. The longest gap, and how many acknowledged messages have not arrived."""
    sent, over = Sent(0.02), asyncio.Event()
    arrived: dict[int, float] = {}
    running = asyncio.create_task(peer.run(lambda number: arrived.setdefault(number, time.monotonic()), sent, over))
    await _until(lambda: len(arrived) >= 50)
    since = time.monotonic()
    os.kill(peer.leader(), SIGNALS[kind])
    goes_on = False
    with suppress(TimeoutError):
        await _until(lambda: sum(sent.published_at[number] > since for number in list(arrived)) >= 40, PEER_S)
        goes_on = True
        await _until(lambda: not sent.acknowledged - arrived.keys(), PEER_S)
    over.set()
    with suppress(TimeoutError):
        await asyncio.wait_for(running, PEER_S)
    if not goes_on:
        return PEER_S, len(sent.acknowledged - arrived.keys())
    times = sorted(at for at in arrived.values() if at >= since)
    return max(after - before for before, after in pairwise([since, *times])), len(sent.acknowledged - arrived.keys())


async def _until(holds: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.02)


# Throughput


def throughput(folder: Path, ensemble: Ensemble) -> None:
    """In turns, since the load of the machine changes: with a mirror, without, ..."""
    rates: dict[str, list[float]] = {"mirrored": [], "unmirrored": []}
    places = {name: folder / name for name in rates}
    for place in places.values():
        place.mkdir()
    with (
        domain(places["mirrored"], ensemble, (), path="/mirrored", is_synced=True) as mirrored,
        domain(places["unmirrored"], ensemble, BROKERS[:1], path="/plain", mirrors=0, is_synced=True) as plain,
    ):
        asyncio.run(_start(mirrored, BROKERS[:1]))
        for number in range(ROUNDS):
            for name, made in (("mirrored", mirrored), ("unmirrored", plain)):
                rates[name].append(asyncio.run(_publish(made, name == "mirrored", number)))
    for name, found in rates.items():
        print(f"{name}: {statistics.median(found):,.0f} messages/s, rounds {', '.join(f'{one:,.0f}' for one in found)}")
    mirrored_rate, plain_rate = (statistics.median(rates[name]) for name in ("mirrored", "unmirrored"))
    ratio = f"{mirrored_rate / plain_rate:.2f}" if plain_rate else "unknown"  # on a machine that has no time for it
    print(f"mirrored / unmirrored: {ratio}; load average {_load()}", flush=True)


async def _publish(made: Domain, is_mirrored: bool, number: int) -> float:
    """Acknowledged messages per second; a durable queue takes them, and is emptied by its end."""
    if is_mirrored:
        await made.until_set("west-1", "west-1", 1)
    address = await made.address("west-1")
    async with (
        overlane.client.connect(address, client_id=f"queue-{number}", session_expiry="1m") as reader,
        reader.subscribe(f"load/{number}", qos=1) as messages,
    ):
        reading = asyncio.create_task(_read(messages))
        ends = time.monotonic() + SECONDS
        counts = await asyncio.gather(*(_write(address, f"load/{number}", ends) for _ in range(WRITERS)))
        reading.cancel()
    return sum(counts) / SECONDS


async def _read(messages: overlane.client.Subscription) -> None:
    async for _ in messages:
        pass


async def _write(address: str, topic: str, ends: float) -> int:
    acknowledged = 0
    async with overlane.client.connect(address) as client:

        async def one_by_one() -> None:
            nonlocal acknowledged
            while time.monotonic() < ends:
                await client.publish(topic, b"x" * 64, qos=1)
                acknowledged += time.monotonic() < ends

        await asyncio.gather(*(one_by_one() for _ in range(IN_FLIGHT)))
    return acknowledged


if __name__ == "__main__":
    main()
