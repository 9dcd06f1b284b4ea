"""The routing tier grows and shrinks with the measured load, and no acknowledged message is lost: `overlane up` with
`launcher = "local"`.

A routing broker may send 800 kbit/s (`rate` in [routing]). Messages of QoS 1 from one domain to the other need several
times that, then next to nothing; they never stop, so that brokers come and are drained under way.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from _tiers import HELP_S, OVERLANE, START_S, Broker, Ensemble, Load, Tiers
from overlane.coordination.client import coordination_client
from overlane.coordination.reading import Overview, read_overview
from overlane.coordination.zookeeper import Access
from overlane.local_ports import free_ports

NETWORK = """
[coordination]
zookeeper = "{zookeeper}"
path = "{path}"
[routing]
brokers_min = 1
brokers_max = {brokers_max}
rate = "800kbit"
grow_above = {grow_above}
grow_after = "{patience_s}s"
shrink_after = "{patience_s}s"
launcher = "local"
[topics."load/#"]
reliability = "reliable"
"""
BROKERS = {"routing-1": ("routing", "core"), "west-1": ("edge", "west"), "east-1": ("edge", "east")}
LOOK_S = 0.25
HEAVY_BYTES, HEAVY_EVERY_S = 2_000, 0.05
LIGHT_BYTES, LIGHT_EVERY_S = 1, 0.2


@dataclass(frozen=True)
class Moment:
    at_s: float
    wanted: int
    carrying: int
    """Routing brokers that carry bundles."""
    load_max: float


@contextmanager
def elastic_overlay(
    folder: Path, ensemble: Ensemble, path: str, brokers_max: int = 2, patience_s: int = 1, grow_above: float = 0.7
) -> Iterator[Tiers]:
    """One routing broker and two edges to begin with, run by `overlane up`."""
    tiers = Tiers(folder, ensemble, path)
    text = NETWORK.format(
        zookeeper=ensemble.addresses,
        path=path,
        brokers_max=brokers_max,
        patience_s=patience_s,
        grow_above=grow_above,
    )
    for name, (role, domain) in BROKERS.items():
        broker = Broker(name, role, domain, free_ports(3))
        mqtt, overlay, admin = (f'"127.0.0.1:{port}"' for port in broker.ports)
        text += f'[brokers.{name}]\nrole = "{role}"\ndomain = "{domain}"\n'
        text += f"mqtt = {mqtt}\noverlay = {overlay}\nadmin = {admin}\n"
        tiers.brokers[name] = broker
    file = folder / "elastic.toml"
    file.write_text(text)
    command = [*OVERLANE, "up", str(file), "--data", str(folder / "data")]
    with (folder / "up.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as up:
        try:
            asyncio.run(tiers.ready())
            yield tiers
        finally:
            up.terminate()
            up.wait(HELP_S)


class Watch:
    """What ZooKeeper says of the tier, as long as it lasts."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self.moments: list[Moment] = []

    async def until(self, holds: Callable[[Moment], bool], what: str, within_s: float = START_S) -> None:
        began = time.monotonic()
        async with coordination_client(Access(self._tiers.ensemble.addresses, self._tiers.path), START_S) as session:
            while time.monotonic() < began + within_s:
                moment = _moment(await read_overview(session))
                self.moments.append(moment)
                if holds(moment):
                    return
                await asyncio.sleep(LOOK_S)
        raise RuntimeError(f"not within {within_s:g} s: {what}; last {self.moments[-1:]}\n{self._tiers.logs()}")

    def changes(self) -> list[tuple[int, int]]:
        """How often the wanted number changed, and how."""
        numbers = [moment.wanted for moment in self.moments]
        return [(before, after) for before, after in pairwise(numbers) if before != after]


def _moment(found: Overview) -> Moment:
    routing = [name for name, one in found.brokers.items() if one.role == "routing"]
    carrying = {one.broker for one in found.assigned.values()} & set(routing)
    loads = [found.reports[name].load for name in routing if name in found.reports]
    wanted = found.wanted.routing if found.wanted is not None else 0
    return Moment(time.monotonic(), wanted, len(carrying), max(loads, default=0.0))


async def grow_and_shrink(
    load: Load, watch: Watch, brokers_max: int, levelled: Callable[[Moment], bool] | None = None
) -> dict[str, float]:
    """Seconds from the rise of the load until the largest tier carries topics, until `levelled` holds if that is
    asked for, and from its fall until one broker carries everything again."""
    took_s = {}

    async def phase(name: str, work: Awaitable[None]) -> None:
        began = time.monotonic()
        await work
        took_s[name] = time.monotonic() - began

    load.pad(LIGHT_BYTES, LIGHT_EVERY_S)
    async with load.running():
        load.pad(HEAVY_BYTES, HEAVY_EVERY_S)
        await phase("grown", watch.until(lambda now: now.carrying == brokers_max, f"{brokers_max} brokers carry"))
        if levelled is not None:
            await phase("levelled", watch.until(levelled, "the load is shared", 3 * START_S))
        load.pad(LIGHT_BYTES, LIGHT_EVERY_S)
        await load.until_all_arrive()
        await phase(
            "shrunk", watch.until(lambda now: now.wanted == now.carrying == 1, "one broker carries all", 3 * START_S)
        )
        await load.until_all_arrive()
    return took_s


def run_elastic(folder: Path, ensemble: Ensemble, brokers_max: int = 3) -> None:
    with elastic_overlay(folder, ensemble, "/elastic", brokers_max, patience_s=3) as tiers:
        load, watch = Load(tiers, 12), Watch(tiers)
        peaks: list[float] = []

        def is_levelled(now: Moment) -> bool:
            peaks.append(now.load_max)
            return now.load_max < 0.6 * max(peaks)

        took_s = asyncio.run(grow_and_shrink(load, watch, brokers_max, is_levelled))
    acknowledged = sum(len(stream.acknowledged) for stream in load.streams)
    lost, twice = sum(len(one.lost()) for one in load.streams), sum(one.twice() for one in load.streams)
    print(f"the tier grows from 1 to {brokers_max} routing brokers and back: load {os.getloadavg()[0]:.1f}")
    for name, seconds in took_s.items():
        print(f"  {name} after {seconds:.1f} s")
    numbers = " ".join(str(after) for _, after in watch.changes())
    load_max = max(one.load_max for one in watch.moments)
    print(f"  wanted: {watch.moments[0].wanted} {numbers}; greatest load of one: {load_max:.2f}")
    print(f"  {acknowledged} messages acknowledged, {lost} lost, {twice} twice", flush=True)
    if lost or twice:
        raise SystemExit(1)
