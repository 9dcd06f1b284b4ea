"""Two tiers under load while brokers and ZooKeeper servers are killed and stopped; ten thousand subscribers at once.

    python bench/coordination.py                      # 3 servers, 3 routing brokers, 6 edges
    python bench/coordination.py --only join
    python bench/coordination.py --only elastic
    python bench/coordination.py --only clients

Messages of QoS 1 go from edges of one domain to edges of the other. Each fault is healed before the next. The gap is
the longest time without an arrival on a topic; the table gives the worst and the median topic, and the load average of
the machine. A fault waits until all brokers are back and linked; `--repeat 10` runs each ten times. Nothing that was
acknowledged may be lost, and nothing may arrive twice. `none` is no fault at all: the gap that the load of the machine
causes by itself.

`join`: ten thousand subscribers join at once, see `_joining.py`. `elastic`: the
routing tier grows and shrinks with its load, see `_elastic.py`. `clients`: connections of clients to the edge that has
their session, and to another one of the domain, see `_passing.py`.
"""

import argparse
import asyncio
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from _elastic import run_elastic
from _joining import run_join
from _passing import run_passing
from _priority import go_first
from _tiers import Ensemble, Load, Tiers, two_tiers

Heal = Callable[[], Awaitable[None]]

STOPPED_S = 10.0
REST_S = 2.0
FAULTS = (
    "none",
    "kill worker",
    "stop worker",
    "kill leader",
    "stop leader",
    "kill zk leader",
    "stop zk leader",
    "all of zk",
)


def main() -> None:
    options = _options()
    go_first(options.nice)
    with tempfile.TemporaryDirectory(prefix="overlane-tiers-") as folder:
        ensemble = Ensemble(Path(folder) / "zookeeper")
        ensemble.start()
        try:
            if options.only in (None, "faults"):
                with two_tiers(Path(folder), ensemble, options.routing, options.edges) as tiers:
                    faults = [one for one in options.faults or FAULTS for _ in range(options.repeat)]
                    asyncio.run(_run_faults(tiers, options.topics, faults))
            if options.only in (None, "join"):
                run_join(ensemble, options.subscribers, options.join_edges, options.join_seconds)
            if options.only in (None, "elastic"):
                run_elastic(Path(folder), ensemble)
            if options.only in (None, "clients"):
                run_passing(Path(folder), ensemble, options.rounds)
        finally:
            ensemble.stop()


async def _run_faults(tiers: Tiers, topics: int, faults: Sequence[str]) -> None:
    load = Load(tiers, topics)
    print(f"{'fault':16} {'median gap':>11} {'worst gap':>10} {'load':>6}", flush=True)
    async with load.running():
        for fault in faults:
            await asyncio.sleep(REST_S)
            await tiers.ready()
            since = time.monotonic()
            healed = await _cause(fault, tiers)
            await load.until_all_arrive()
            await asyncio.sleep(REST_S)
            gaps = [stream.gap_s(since, time.monotonic()) for stream in load.streams]
            print(
                f"{fault:16} {statistics.median(gaps):9.2f} s {max(gaps):8.2f} s {os.getloadavg()[0]:6.1f}", flush=True
            )
            await healed()
            await tiers.ready()
            await load.until_all_arrive()
    acknowledged = sum(len(stream.acknowledged) for stream in load.streams)
    lost, twice = sum(len(one.lost()) for one in load.streams), sum(one.twice() for one in load.streams)
    print(f"{acknowledged} messages acknowledged, {lost} lost, {twice} twice", flush=True)
    if lost or twice:
        raise SystemExit(1)


async def _cause(fault: str, tiers: Tiers) -> Heal:
    """Returns what heals it."""

    async def nothing() -> None: ...

    if fault == "none":
        await asyncio.sleep(STOPPED_S)
        return nothing
    if fault == "all of zk":
        await asyncio.to_thread(tiers.ensemble.stop)
        await asyncio.sleep(STOPPED_S)

        async def start() -> None:
            await asyncio.to_thread(tiers.ensemble.start)

        return start
    if fault.endswith("zk leader"):
        number = await tiers.ensemble.leader()
        server = tiers.ensemble.server_ids()[number]
        return await _signal(fault, server, nothing)
    found = await tiers.overview()
    routing = sorted(name for name, one in found.brokers.items() if one.role == "routing" and name != found.leader)
    broker = tiers.brokers[routing[0] if fault.endswith("worker") else str(found.leader)]
    assert broker.process is not None
    if fault.startswith("kill"):
        broker.former_life = (await tiers.lives())[broker.name]
        tiers.kill(broker)

        async def restart() -> None:
            tiers.start(broker)

        return restart
    return await _signal(fault, broker.process.pid, nothing)


async def _signal(fault: str, process: int, nothing: Heal) -> Heal:
    if fault.startswith("kill"):
        os.kill(process, signal.SIGKILL)
        return nothing
    os.kill(process, signal.SIGSTOP)
    await asyncio.sleep(STOPPED_S)

    async def go_on() -> None:
        os.kill(process, signal.SIGCONT)

    return go_on


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--routing", type=int, default=3)
    parser.add_argument("--edges", type=int, default=6)
    parser.add_argument("--topics", type=int, default=12)
    parser.add_argument("--subscribers", type=int, default=10_000)
    parser.add_argument("--join-edges", type=int, default=20)
    parser.add_argument("--join-seconds", type=float, default=0.0, help="They join within this time, not at once.")
    parser.add_argument("--only", choices=("faults", "join", "elastic", "clients"))
    parser.add_argument("--repeat", type=int, default=1, help="How many times each fault.")
    parser.add_argument("--rounds", type=int, default=300, help="Connections of each kind, for `clients`.")
    parser.add_argument("--nice", type=int, default=0, help="Priority of everything, where others use the machine.")
    parser.add_argument("--faults", action="append", choices=FAULTS, help="Only these.")
    return parser.parse_args()


if __name__ == "__main__":
    main()
