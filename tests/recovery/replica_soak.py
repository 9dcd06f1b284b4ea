"""Random histories of a replicated broker: faults first, checked at every step, then healed and required to go on.

    python tests/recovery/replica_soak.py 1000          # seeds 0 to 999
    python tests/recovery/replica_soak.py 1000 5000     # seeds 5000 to 5999
    python tests/recovery/replica_soak.py 1000 --wild   # with clocks whose rates differ by up to a factor of 25
    python tests/recovery/replica_soak.py 1000 --moves  # while the broker is handed over again and again
    python tests/recovery/replica_soak.py 7 --trace     # what happens in seed 7

A seed that fails is printed with the invariant that does not hold.
"""

import random
import sys
import time

from replica_world import SETTINGS, Host, Violation, World

from overlane.core.units import MS, Nanos
from overlane.recovery.events import HandOver, Settings

FAULTS_FOR = 1_000 * MS
HEALED_WITHIN = 3_000 * MS
STEP = 25 * MS


def run_seed(
    seed: int,
    settings: Settings = SETTINGS,
    *,
    is_traced: bool = False,
    has_wild_clocks: bool = False,
    has_moves: bool = False,
) -> World:
    """Violation, with the seed. With wild clocks faults do not end: nobody promises progress then."""
    moves = random.Random(seed)  # of its own: a seed without moves is the same as ever
    world = World(seed, hosts=2 + min(2, seed % 5), settings=settings, has_wild_clocks=has_wild_clocks)
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


def main(arguments: list[str]) -> int:
    count = int(arguments[0])
    first = int(arguments[1]) if len(arguments) > 1 and arguments[1].isdecimal() else 0
    if "--trace" in arguments:
        run_seed(count, is_traced=True)
        return 0
    started, acked, failed, epochs = time.process_time(), 0, 0, 0
    for seed in range(first, first + count):
        try:
            world = run_seed(seed, has_wild_clocks="--wild" in arguments, has_moves="--moves" in arguments)
        except Violation as violation:
            failed += 1
            print(violation, flush=True)
        else:
            acked += len(world.acked)
            epochs += world.served
    spent = time.process_time() - started
    seeds = f"seeds {first} to {first + count - 1}"
    print(f"{seeds}: {failed} failed, {acked} acknowledged, {epochs} epochs, {spent:.0f} s of processor time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
