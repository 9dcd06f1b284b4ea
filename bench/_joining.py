"""Ten thousand subscribers join: how long until the leader knows what each of them needs, and what that costs.

Every edge is a process, as a broker is, and so is the routing broker that leads. They are participants without the rest
of a broker: what is measured is the coordination. At once: an edge takes 50 subscriptions in one iteration of its event
loop, as fast as it can, and reports after each iteration what has changed, as a broker does. Within some seconds:
subscribers come one by one, at random times.

A subscriber's time runs from its subscription until the leader has the bundle of its topic in the report of its edge.
It is zero where the leader has it already; the others are shown by themselves too. Its stages: until its edge begins to
write a report that has it, until a watch of the leader tells that there is one, and until the leader has read it.
Messages do not wait for any of that: routing brokers of all bundles are assigned beforehand, and every edge knows them.

The first line is the same for one edge with one subscriber at a time: what a single change takes. Processor time is
that of the processes here; that of ZooKeeper's servers has a line of its own.
"""

import asyncio
import multiprocessing
import os
import random
import statistics
import time
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from _tiers import Ensemble
from overlane.coordination.assignment.placement import least_loaded
from overlane.coordination.contract import Changed, ChildrenChanged, Event, Transaction
from overlane.coordination.leader import AssignmentPolicy, Leader
from overlane.coordination.participant import Participant
from overlane.coordination.records import REPORTS, BrokerRecord, ReportRecord, Role, pack, unpack
from overlane.coordination.zookeeper import Access, ZooKeeper
from overlane.core.units import SECOND

PER_TURN = 50
"""Subscriptions that an edge takes in one iteration of its loop."""
BUNDLES = 256
ALONE = 100
WAIT_S = 300.0
LEADER = "routing-1"


@dataclass(frozen=True)
class Outcome:
    name: str
    asked: tuple[tuple[int, float], ...] = ()
    """Of an edge: the bundle of each subscriber, and when it asked."""
    written: tuple[tuple[float, frozenset[int]], ...] = ()
    """Of an edge: when it began to write a report, and the bundles in it."""
    watched_at_s: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Of the leader: by path, when it was told that a report has changed, or that there is another one."""
    known_at_s: dict[tuple[str, int], float] = field(default_factory=dict)
    """Of the leader: by edge and bundle."""
    reports: int = 0
    """That the leader has read."""
    writes: int = 0
    cpu_s: float = 0.0
    servers_cpu_s: float = 0.0
    """Of the leader: what ZooKeeper's servers took meanwhile."""


class _Member:
    def __init__(self, addresses: str, root: str, name: str, role: Role) -> None:
        leader = Leader(AssignmentPolicy(least_loaded)) if role == "routing" else None
        self.participant = Participant(name, BrokerRecord("d", role, 1, ("127.0.0.1:1",)), leader)
        self.known_at_s: dict[tuple[str, int], float] = {}
        self.reports = 0
        self.written: list[tuple[float, frozenset[int]]] = []
        self.watched_at_s: dict[str, list[float]] = {}
        self._used: frozenset[int] = frozenset()
        self._known: dict[str, ReportRecord] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.service = ZooKeeper(Access(addresses, root), self._heard)

    def _heard(self, event: Event) -> None:
        if isinstance(event, Changed | ChildrenChanged) and event.path.startswith(REPORTS):
            self.watched_at_s.setdefault(event.path, []).append(time.monotonic())
        self.participant.handle(event, time.monotonic_ns())
        self._ask()
        if self.participant.leading is not None:
            self._look(self.participant.leading.reports)

    def _look(self, reports: dict[str, ReportRecord]) -> None:
        now = time.monotonic()
        for name, report in reports.items():
            if self._known.get(name) is not report:
                self._known[name] = report
                self.reports += 1
                for bundle in unpack(report.wants):
                    self.known_at_s.setdefault((name, bundle), now)

    def go_on(self) -> None:
        self.participant.tick(time.monotonic_ns())
        self._ask()

    def report(self, used: set[int]) -> None:
        self._used = frozenset(used)
        self.participant.report(ReportRecord(0.1, pack(self._used), ""))
        self.go_on()

    def _ask(self) -> None:
        for number, request in self.participant.requests.take():
            if isinstance(request, Transaction) and request.operations[0].path.startswith(f"{REPORTS}/"):
                self.written.append((time.monotonic(), self._used))
            self.service.ask(number, request)
        if self._timer is not None:
            self._timer.cancel()
        due_s = (self.participant.next_deadline() - time.monotonic_ns()) / SECOND
        self._timer = self._loop.call_later(max(0.001, min(1.0, due_s)), self.go_on)

    async def ready(self) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.participant.assigned) < BUNDLES or self.participant.name not in self.participant.members:
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        await asyncio.to_thread(self.service.close)


def _bundles(edge: int, subscribers: int) -> list[int]:
    """Those that its subscribers need, in their order."""
    luck = random.Random(edge)
    return [luck.randrange(BUNDLES) for _ in range(subscribers)]


def _arrivals(edge: int, bundles: list[int], seconds: float) -> list[tuple[float, list[int]]]:
    """When subscribers come, in seconds since the beginning, and the bundles that they need."""
    if not seconds:
        return [(0.0, bundles[first : first + PER_TURN]) for first in range(0, len(bundles), PER_TURN)]
    luck = random.Random(-1 - edge)
    times_s = sorted(luck.uniform(0, seconds) for _ in bundles)
    return [(at_s, [bundle]) for at_s, bundle in zip(times_s, bundles, strict=True)]


async def _edge(addresses: str, root: str, number: int, subscribers: int, seconds: float, together: Barrier) -> Outcome:
    name = f"edge-{number}"
    me = _Member(addresses, root, name, "edge")
    await me.ready()
    me.report(set())  # as a broker does when it starts: its report is there before anybody joins
    bundles = _bundles(number, subscribers)
    await asyncio.to_thread(together.wait)
    asked: list[tuple[int, float]] = []
    used: set[int] = set()
    cpu_s, began_s = time.process_time(), time.monotonic()
    for at_s, some in _arrivals(number, bundles, seconds):
        await asyncio.sleep(max(0.0, began_s + at_s - time.monotonic()))
        for bundle in some:
            asked.append((bundle, time.monotonic()))
            used.add(bundle)
        me.report(used)
    await asyncio.to_thread(together.wait)  # the leader knows all of it
    cpu_s = time.process_time() - cpu_s
    await me.close()
    return Outcome(name, tuple(asked), tuple(me.written), cpu_s=cpu_s)


async def _lead(
    addresses: str, root: str, edges: int, subscribers: int, servers: tuple[int, ...], together: Barrier
) -> Outcome:
    me = _Member(addresses, root, LEADER, "routing")
    await me.ready()
    leading = me.participant.leading
    assert leading is not None
    async with asyncio.timeout(WAIT_S):
        while len(leading.reports.keys() - {LEADER}) < edges:
            await asyncio.sleep(0.02)
    versions = [leading.report_version(f"edge-{edge}") for edge in range(edges)]
    expected = {(f"edge-{edge}", bundle) for edge in range(edges) for bundle in _bundles(edge, subscribers)}
    await asyncio.to_thread(together.wait)
    cpu_s, servers_s, before = time.process_time(), _cpu_s(servers), me.reports
    async with asyncio.timeout(WAIT_S):
        while not expected <= me.known_at_s.keys():
            await asyncio.sleep(0.01)
    cpu_s, servers_s = time.process_time() - cpu_s, _cpu_s(servers) - servers_s
    writes = sum(leading.report_version(f"edge-{edge}") - versions[edge] for edge in range(edges))
    await asyncio.to_thread(together.wait)
    await me.close()
    watched = {name: tuple(times) for name, times in me.watched_at_s.items()}
    return Outcome(
        LEADER,
        watched_at_s=watched,
        known_at_s=me.known_at_s,
        reports=me.reports - before,
        writes=writes,
        cpu_s=cpu_s,
        servers_cpu_s=servers_s,
    )


def _process(
    results: "Queue[Outcome]",
    addresses: str,
    root: str,
    number: int,
    edges: int,
    subscribers: int,
    seconds: float,
    servers: tuple[int, ...],
    together: Barrier,
) -> None:
    """An edge; the leader where the number is that of edges."""
    if number == edges:
        results.put(asyncio.run(_lead(addresses, root, edges, subscribers // edges, servers, together)))
    else:
        results.put(asyncio.run(_edge(addresses, root, number, subscribers // edges, seconds, together)))


def run_join(ensemble: Ensemble, subscribers: int, edges: int, seconds: float) -> None:
    addresses = ensemble.addresses
    asyncio.run(_alone(addresses))
    context = multiprocessing.get_context("spawn")
    together, results = context.Barrier(edges + 1), context.Queue()
    words = (addresses, f"/join-{seconds:g}")
    servers = tuple(ensemble.server_ids().values())
    processes = [
        context.Process(target=_process, args=(results, *words, number, edges, subscribers, seconds, servers, together))
        for number in range(edges + 1)
    ]
    for process in processes:
        process.start()
    outcomes = [results.get(timeout=WAIT_S) for _ in processes]
    for process in processes:
        process.join()
    (leader,) = [one for one in outcomes if one.name == LEADER]
    members = [one for one in outcomes if one.name != LEADER]
    took_ms = [1000 * max(0.0, leader.known_at_s[one.name, bundle] - at) for one in members for bundle, at in one.asked]
    how = f"within {seconds:g} s" if seconds else "at once"
    print(f"{len(took_ms)} subscribers at {edges} edges {how}: the leader knows: {_spread(took_ms)}")
    unknown_ms = [one for one in took_ms if one > 0]
    print(f"  of those, {len(unknown_ms)} that the leader did not know yet: {_spread(unknown_ms)}")
    _print_stages(leader, members)
    # A name, a registration and a report per broker, 16 shards, 9 folders and 5 nodes of which there is one.
    print(f"  {leader.writes} writes, {leader.reports} reads, {3 * (edges + 1) + 16 + 14} znodes, calculated")
    edge_ms = 1000 * sum(one.cpu_s for one in members) / leader.writes
    leader_ms = 1000 * leader.cpu_s / leader.reports
    print(f"  processor time: {edge_ms:.2f} ms of an edge per write, {leader_ms:.2f} ms of the leader per report")
    server_ms = 1000 * leader.servers_cpu_s / leader.writes
    print(f"  and {server_ms:.2f} ms of the servers per write; load average {os.getloadavg()[0]:.0f}", flush=True)


def _cpu_s(processes: tuple[int, ...]) -> float:
    """Of all together."""
    ticks = 0
    for process in processes:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _print_stages(leader: Outcome, edges: list[Outcome]) -> None:
    stages: dict[str, list[float]] = {"edge": [], "write and watch": [], "read": []}
    for edge in edges:
        paths = (REPORTS, f"{REPORTS}/{edge.name}")  # the first report is a new child
        for bundle, asked_s in edge.asked:
            known_s = leader.known_at_s[edge.name, bundle]
            written_s = next((at for at, used in edge.written if bundle in used and at >= asked_s), known_s)
            if known_s <= asked_s:
                continue  # the leader knew
            watches_s = [at for path in paths for at in leader.watched_at_s.get(path, ())]
            told_s = max((at for at in watches_s if written_s <= at <= known_s), default=known_s)
            ends_s = (asked_s, written_s, told_s, known_s)
            for stage, (begin_s, end_s) in zip(stages.values(), pairwise(ends_s), strict=True):
                stage.append(1000 * (end_s - begin_s))
    for name, values_ms in stages.items():
        print(f"  {name}: {_spread(values_ms)}")


async def _alone(addresses: str) -> None:
    """One change after the other, in one process: what each takes by itself."""
    leader = _Member(addresses, "/alone", LEADER, "routing")
    edge = _Member(addresses, "/alone", "edge-0", "edge")
    await leader.ready()
    await edge.ready()
    took_ms: list[float] = []
    used: set[int] = set()
    for bundle in range(ALONE):
        used.add(bundle)
        began = time.monotonic()
        edge.report(used)
        while ("edge-0", bundle) not in leader.known_at_s:
            await asyncio.sleep(0.0002)
        took_ms.append(1000 * (leader.known_at_s["edge-0", bundle] - began))
        await asyncio.sleep(0.06)  # so that the limit of 20 reports a second does not count
    print(f"one subscriber at a time: the leader knows: {_spread(took_ms)}", flush=True)
    await leader.close()
    await edge.close()


def _spread(values_ms: list[float]) -> str:
    if len(values_ms) < 2:
        return f"{len(values_ms)} of them"
    cuts = statistics.quantiles(values_ms, n=100)
    return f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms"
