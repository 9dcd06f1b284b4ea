"""One seed, from the first fault to the last probe, and many of them.

First safety: during traffic and faults, and after. Then progress: with everything healed, the overlay must converge
within a minute: all reliable messages delivered, the same map at all brokers, and no more transmissions. Then, on links
without loss, the topic of every publisher gets new messages, which must arrive everywhere, and late subscribers must
get the history that is kept.
"""

import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

import msgspec

from overlane.core.units import MS, SECOND, Nanos
from overlane.network import Lossy, Network
from overlane.sim.soak.drawing import TRAFFIC_NS, draw
from overlane.sim.soak.hostile import corrupt
from overlane.sim.soak.invariants import Broken, converged, nothing_forbidden, nothing_lost
from overlane.sim.soak.probes import add_newcomers, fresh_lost, history_lost
from overlane.sim.world import World

REST_WITHIN_NS: Nanos = 60 * SECOND
STILL_FOR_NS: Nanos = 2 * SECOND
STEP_NS: Nanos = 500 * MS
STORM_STEP_NS: Nanos = 50 * MS
EVENTS_PER_STEP_MAX = 20_000
PROBES = 3
PROBE_EVERY_NS: Nanos = 100 * MS
PROBES_WITHIN_NS: Nanos = 5 * SECOND


class SeedVerdict(msgspec.Struct, frozen=True):
    seed: int
    deliveries: int
    digest: str
    broken: Broken | None
    of: str = "overlay"
    """What was simulated: the overlay of many brokers, or whole `brokers`."""

    def told(self) -> str:
        if self.broken is None:
            return f"seed {self.seed} ({self.of}): all invariants hold"
        return (
            f"seed {self.seed} ({self.of}): broken: {self.broken.invariant}\n"
            f"  {self.broken.detail}\n"
            f"  again: overlane simulate --soak 1 --soak-of {self.of} --seed {self.seed}"
        )


def run_seeds(seeds: Iterable[int], jobs: int = 1) -> Iterator[SeedVerdict]:
    """The verdicts in the order of the seeds."""
    return run_each(run_seed, seeds, jobs)


def run_each(run: Callable[[int], SeedVerdict], seeds: Iterable[int], jobs: int) -> Iterator[SeedVerdict]:
    """In the order of the seeds. Whoever stops early does not wait for seeds that have not begun."""
    if jobs == 1:
        yield from map(run, seeds)
        return
    pool = ProcessPoolExecutor(jobs)
    try:
        # Workers begin here, and must not see Ctrl-C; an interrupt in the middle of it would leave them behind.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            verdicts = pool.map(run, seeds)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        yield from verdicts
    finally:
        pool.shutdown(cancel_futures=True)


def run_seed(seed: int) -> SeedVerdict:
    return run_network(draw(seed))


def run_network(network: Network) -> SeedVerdict:
    """Run a drawn network; its verdict."""
    world = World(network)
    corrupt(world)
    try:
        broken = examine(world)
    except Exception as failure:  # whatever it is, it is a finding about this seed, and the next one must still run
        last = traceback.extract_tb(failure.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        at = f"{world.engine.now / SECOND:.3f} s"
        broken = Broken("no broker fails by itself", f"{type(failure).__name__} in {where} at {at}: {failure}")
    deliveries = sum(row.delivered + row.replayed for row in world.judge.rows.values())
    return SeedVerdict(world.seed, deliveries, world.judge.digest_of(), broken)


class _Storm(Exception):
    """Brokers set each other off without end."""


def examine(world: World) -> Broken | None:
    try:
        _run_until(world, TRAFFIC_NS)
        for publisher in world.publishers:
            publisher.stop()
        return nothing_forbidden(world) or _come_to_rest(world) or _probe(world)
    except _Storm as storm:
        return Broken("no storm", str(storm))


def _run_until(world: World, end: Nanos) -> None:
    """Let time pass, in steps short enough to notice a storm before it takes for ever."""
    engine = world.engine
    while engine.now < end:
        scheduled = engine.scheduled
        engine.run_until(min(end, engine.now + STORM_STEP_NS))
        if engine.scheduled - scheduled > EVENTS_PER_STEP_MAX:
            count, at = engine.scheduled - scheduled, engine.now / SECOND
            raise _Storm(f"{count} events within {STORM_STEP_NS / MS:g} ms, until {at:.1f} s")


def _come_to_rest(world: World) -> Broken | None:
    """Wait until the overlay is at rest; what is in the way if it takes too long."""
    sent = world.counter("messages_sent")
    still_since = world.engine.now
    while True:
        _run_until(world, world.engine.now + STEP_NS)
        if world.counter("messages_sent") != sent:
            sent = world.counter("messages_sent")
            still_since = world.engine.now
        broken = nothing_forbidden(world)
        if broken:
            return broken
        is_still = world.engine.now - still_since >= STILL_FOR_NS
        if is_still and not (nothing_lost(world) or converged(world)):
            return None
        if world.engine.now >= TRAFFIC_NS + REST_WITHIN_NS:
            restless = Broken("no loop", f"messages are still being sent at {still_since / SECOND:.1f} s")
            return nothing_lost(world) or converged(world) or restless


def _probe(world: World) -> Broken | None:
    """Fresh messages from every publisher's broker on its topic, and late subscribers for what is kept of them."""
    for one, other in world.links:
        world.do(Lossy(world.engine.now, (one, other), 0.0))
    specs = [spec for spec in world.plan.network.publishers if world.hosts[spec.broker].is_open]
    probes = [(world.add_hand_publisher(spec.broker, spec.topic), spec.broker) for spec in specs]
    for _ in range(PROBES):
        for probe, _ in probes:
            probe.publish()
        _run_until(world, world.engine.now + PROBE_EVERY_NS)
    sources = {probe.index: source for probe, source in probes}
    broken = _wait_for(world, lambda: fresh_lost(world, sources))
    if broken is None:
        newcomers = add_newcomers(world)
        broken = _wait_for(world, lambda: history_lost(world, newcomers))
    return broken or nothing_forbidden(world)


def _wait_for(world: World, missing: Callable[[], Broken | None]) -> Broken | None:
    """Give the overlay some time; what is still missing then."""
    end = world.engine.now + PROBES_WITHIN_NS
    while missing() and world.engine.now < end:
        _run_until(world, world.engine.now + STEP_NS)
    return missing()
