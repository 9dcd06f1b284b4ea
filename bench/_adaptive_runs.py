"""The runs of bench/adaptive.py: one way of routing through one scenario, simulated once and kept.

A run is a pure function of its task and of the code, so its outcome is kept under bench/out/adaptive, by a digest of
the sources it depends on; what has been run with the same code is read back.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from _adaptive_misses import profile
from _adaptive_scenarios import scenario
from overlane.core.qos import Routing
from overlane.core.routing.selection import link_risks
from overlane.core.units import SECOND
from overlane.sim.world import World

KEPT = Path(__file__).parent / "out" / "adaptive"
SOURCES = "core", "planning", "sim", "network"


@dataclass(frozen=True)
class Way:
    """A way of routing: a mode and, to draw the curve, how cautious an adaptive one is."""

    routing: str
    caution: dict[str, Any]
    """What to set otherwise than usual in its caution (core/routing/selection/link_risks.py)."""


WAYS = {
    "single": Way("single", {}),
    "multipath": Way("multipath", {}),
    "thrifty": Way("thrifty", {}),
    "adaptive unprepared": Way("adaptive", {"standing": 1}),
    "adaptive": Way("adaptive", {}),
    "adaptive lavish": Way("adaptive", {"standing": 3}),
    "flood": Way("flood", {}),
}


@contextmanager
def in_force(way: Way) -> Iterator[Routing]:
    """Its mode, as cautious as it is while the block lasts."""
    routing = Routing(way.routing)
    usual = dict(link_risks.CAUTION)
    if way.caution:
        link_risks.CAUTION[routing] = replace(usual[routing], **way.caution)
    try:
        yield routing
    finally:
        link_risks.CAUTION.update(usual)


@dataclass(frozen=True)
class Task:
    place: str
    seed: int
    way: str
    calm: bool
    flows: int
    rate_hz: float
    seconds: float


@dataclass(frozen=True)
class Outcome:
    task: Task
    expected: int
    in_time: int
    late: int
    sent: int
    published: int
    control_bytes_per_broker_s: float
    route_changes: int
    misses: dict[str, int]
    """Messages that were lost or late, by reason (bench/_adaptive_misses.py)."""


def run(task: Task) -> Outcome:
    """The outcome of a task, from an earlier run with the same code if there is one."""
    name = f"{task.place}-{task.seed}-{task.way.replace(' ', '-')}-{'calm' if task.calm else 'rough'}"
    path = KEPT / digest() / f"{name}-{task.flows}x{task.rate_hz:g}x{task.seconds:g}.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Outcome)
    outcome = simulate(task)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(outcome))
    return outcome


@cache
def digest() -> str:
    """Of all that a run depends on but its task."""
    package, here = Path(link_risks.__file__).parents[1], Path(__file__)
    sources = [path for part in SOURCES for path in sorted((package / part).rglob("*.py"))]
    whole = hashlib.sha256()
    for path in [*sources, here, *map(here.with_name, ("_adaptive_misses.py", "_adaptive_scenarios.py"))]:
        whole.update(path.read_bytes())
    return whole.hexdigest()[:12]


def simulate(task: Task) -> Outcome:
    setting = scenario(task.place, task.seed, task.flows, task.rate_hz, int(task.seconds * SECOND))
    with in_force(WAYS[task.way]) as routing:
        world = World(setting.calm if task.calm else setting.network, seed=task.seed, routing=routing.value)
        report = world.run()
    topics = report.topics.values()
    return Outcome(
        task=task,
        expected=sum(topic.expected for topic in topics),
        in_time=sum(topic.in_time for topic in topics),
        late=sum(topic.late for topic in topics),
        sent=world.counter("messages_sent"),
        published=sum(topic.published for topic in topics),
        control_bytes_per_broker_s=report.control_bytes_per_broker_s,
        route_changes=len(report.route_changes),
        misses=profile(world.judge, setting, report.route_changes) if not task.calm else {},
    )
