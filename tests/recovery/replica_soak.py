"""Random histories of a replicated broker: faults first, checked at every step, then healed and required to go on.

    python tests/recovery/replica_soak.py --seeds 1000                      # seeds 0 to 999
    python tests/recovery/replica_soak.py --first-seed 5000 --seeds 100000 --jobs 8
    python tests/recovery/replica_soak.py --seeds 1000 --wild               # clocks differ by up to a factor of 25
    python tests/recovery/replica_soak.py --seeds 1000 --moves              # it is handed over again and again
    python tests/recovery/replica_soak.py --seeds 1000 --ranks              # mirrors claim by their scores
    python tests/recovery/replica_soak.py --first-seed 7 --trace            # what happens in seed 7

A seed that fails is printed with the invariant that does not hold. A seed takes about 20 ms of processor time.
"""

import argparse
import gc
import multiprocessing
import random
import sys
import time
from dataclasses import dataclass
from functools import partial

from replica_world import SETTINGS, Host, Violation, World

from overlane.core.units import MS, Nanos
from overlane.recovery.events import HandOver, ReplicaSettings
from overlane.recovery.hosts.host_records import HostRecord

FAULTS_FOR = 1_000 * MS
HEALED_WITHIN = 3_000 * MS
STEP = 25 * MS
AT_ONCE = 50
"""Seeds that a process gets at a time."""


def run_seed(
    seed: int,
    settings: ReplicaSettings = SETTINGS,
    *,
    is_traced: bool = False,
    has_wild_clocks: bool = False,
    has_moves: bool = False,
    has_ranks: bool = False,
) -> World:
    """Violation, with the seed. With wild clocks faults do not end: nobody promises progress then."""
    moves = random.Random(seed)  # of its own: a seed without moves is the same as ever
    world = World(seed, hosts=2 + min(2, seed % 5), settings=settings, has_wild_clocks=has_wild_clocks)
    if has_ranks:
        world.scores = {name: HostRecord("edge", moves.random()) for name in world.hosts if moves.random() < 0.8}
    if is_traced:
        world.trace = []
    try:
        for _ in range(FAULTS_FOR // STEP):
            _step(world, false_alarms=0.05)
            _publish(world)
            if world.luck.random() < 0.35:
                _fault(world)
            if has_moves and moves.random() < 0.4:
                for host in world.hosts.values():
                    world.give(host, HandOver(moves.choice(list(world.hosts))))
        if has_wild_clocks:
            return world
        _heal(world)
        if not _becomes_healthy(world):
            raise Violation(f"no progress: {_state(world)}")
        _check_equal(world)
    except Violation as violation:
        if world.trace is not None:
            print("\n".join(world.trace))
        raise Violation(f"seed {seed}, {world.now / MS:.1f} ms: {violation}") from None
    return world


def _publish(world: World) -> None:
    for host in world.hosts.values():
        for _ in range(world.luck.randrange(3)):
            world.publish(host)


def _fault(world: World) -> None:
    luck = world.luck
    host = luck.choice(list(world.hosts.values()))
    chance = luck.random()
    if chance < 0.30:
        _crash_or_start(world, host)
    elif chance < 0.60:
        _cut(world, host)
    elif chance < 0.75:
        world.cuts.clear()
        for name in world.hosts:
            world.arbiter.heal(name)
    elif chance < 0.85:
        _pause(world, host, luck.randrange(20, 300) * MS)
    elif chance < 0.93:
        world.slow = luck.choice((0, 0, 30 * MS, 120 * MS))
    else:
        host.disk_slow = luck.choice((0, 0, 20 * MS, 60 * MS))


def _crash_or_start(world: World, host: Host) -> None:
    if host.replica is None:
        world.start(host)
    else:
        world.crash(host, is_wiped=world.luck.random() < 0.4 and world.may_wipe(host))


def _cut(world: World, host: Host) -> None:
    other = world.luck.choice([name for name in (*world.hosts, "arbiter") if name != host.name])
    if other == "arbiter":
        world.arbiter.cut(host.name)
        return
    world.cuts.add((host.name, other))
    if world.luck.random() < 0.6:
        world.cuts.add((other, host.name))


def _pause(world: World, host: Host, duration: Nanos) -> None:
    if host.replica is not None:
        host.paused_until = world.now + duration


def _heal(world: World) -> None:
    world.cuts.clear()
    world.slow = 0
    world.arbiter.is_faulty = False
    for host in world.hosts.values():
        world.arbiter.heal(host.name)
        host.disk_slow = 0
        if host.replica is not None:
            continue
        if world.luck.random() < 0.3 and len(world.lasting) > 2 and world.may_wipe(host):
            world.lose(host)
        else:
            world.start(host)


def _becomes_healthy(world: World) -> bool:
    """One primary serves, all others that were not lost for good are in sync, and a message that is published now is
    acknowledged as mirrored."""
    asked: int | None = None
    for _ in range(HEALED_WITHIN // STEP):
        _step(world)
        if asked in world.acked:
            return True
        value = world.arbiter.value
        serving = [host for host in world.hosts.values() if host.epoch]
        storages = {host.disk.stored.storage for host in world.lasting}
        if value is None or value.storages != storages or len(serving) != 1:
            continue
        if asked not in serving[0].pending.values():
            asked = _publish_mirrored(world, serving[0])
    return False


def _step(world: World, false_alarms: float = 0.0) -> None:
    world.run(STEP)
    for host in world.hosts.values():
        world.watch(host, is_mistaken=world.luck.random() < false_alarms)


def _publish_mirrored(world: World, host: Host) -> int | None:
    number = world.publish(host)
    return world.publish(host) if number is not None and number % 2 == 0 else number


def _check_equal(world: World) -> None:
    for _ in range(HEALED_WITHIN // STEP):
        contents = [host.disk.content for host in world.lasting]
        if all(content == contents[0] for content in contents):
            return
        _step(world)
    raise Violation(f"the contents differ: {_state(world)}")


def _state(world: World) -> str:
    hosts = [
        f"{host.name}: {type(host.replica.role).__name__ if host.replica else 'down'} {host.disk.stored}"
        for host in world.hosts.values()
    ]
    return "; ".join([str(world.arbiter.value), *hosts])


@dataclass(frozen=True)
class Result:
    """Of some seeds, one after the other."""

    acknowledged: int
    epochs: int
    violations: tuple[str, ...]
    spent_s: float


@dataclass(frozen=True)
class Kind:
    has_wild_clocks: bool
    has_moves: bool
    has_ranks: bool


def run_seeds(kind: Kind, seeds: range) -> Result:
    started, acknowledged, epochs, violations = time.process_time(), 0, 0, []
    for seed in seeds:
        try:
            world = run_seed(
                seed, has_wild_clocks=kind.has_wild_clocks, has_moves=kind.has_moves, has_ranks=kind.has_ranks
            )
        except Violation as violation:
            violations.append(str(violation))
        else:
            acknowledged += len(world.acked)
            epochs += world.served
    return Result(acknowledged, epochs, tuple(violations), time.process_time() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--wild", action="store_true", help="clocks differ by up to a factor of 25")
    parser.add_argument("--moves", action="store_true", help="the broker is handed over again and again")
    parser.add_argument("--ranks", action="store_true", help="mirrors claim by their scores")
    parser.add_argument("--trace", action="store_true", help="print what happens in the first seed")
    words = parser.parse_args()
    if words.trace:
        print("\n".join(run_seed(words.first_seed, is_traced=True).trace or ()))
        return 0
    kind = Kind(words.wild, words.moves, words.ranks)
    end = words.first_seed + words.seeds
    parts = [range(first, min(end, first + AT_ONCE)) for first in range(words.first_seed, end, AT_ONCE)]
    started, results = time.monotonic(), []
    with multiprocessing.get_context("fork").Pool(words.jobs, gc.freeze) as pool:
        for result in pool.imap_unordered(partial(run_seeds, kind), parts):
            results.append(result)
            for violation in result.violations:
                print(violation, flush=True)
    failed = sum(len(one.violations) for one in results)
    acknowledged, epochs = sum(one.acknowledged for one in results), sum(one.epochs for one in results)
    print(
        f"seeds {words.first_seed} to {end - 1}: {failed} failed, {acknowledged} acknowledged, {epochs} epochs,"
        f" {sum(one.spent_s for one in results):.0f} s of processor time, {time.monotonic() - started:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
