"""A process to be killed: it submits numbered turns and prints the number of each that is durable.

    python storewriter.py DIRECTORY

Turn n saves some records of its own, erases what turn n - 20 saved, and writes its number down. What the store holds
after turn n so follows from n alone.
"""

import sys
from pathlib import Path
from random import Random

from storebench import Loop

from overlane.node.store.durable import Store, StoreError
from overlane.node.store.record_file import Name

KEPT_TURNS = 20
WAITING_MAX = 30
LATEST: Name = ("turn", b"latest")


def records(turn: int) -> dict[Name, bytes]:
    """What a turn saves."""
    luck = Random(turn)
    size = luck.choice([10, 150, 150, 150, 9000])
    return {("queue", b"%d %d" % (turn, number)): luck.randbytes(size) for number in range(luck.randrange(1, 20))}


def expected(turn: int) -> dict[Name, bytes]:
    """What the store holds after a turn; before the first it is turn 0."""
    held = {name: value for n in range(max(1, turn - KEPT_TURNS + 1), turn + 1) for name, value in records(n).items()}
    return {**held, LATEST: b"%d" % turn} if turn else {}


def latest(content: dict[Name, bytes]) -> int:
    return int(content.get(LATEST, b"0"))


def main(directory: Path) -> None:
    loop = Loop()
    store = Store.open(directory, loop.soon)
    turn = done = latest({(kind, key): value for kind, key, value in store.records()})

    def told(error: StoreError | None) -> None:
        nonlocal done
        assert error is None
        done += 1
        print(done, flush=True)

    def has_room() -> bool:
        return turn - done < WAITING_MAX

    print("ready", flush=True)
    while True:
        turn += 1
        gone: dict[Name, bytes | None] = dict.fromkeys(records(turn - KEPT_TURNS)) if turn > KEPT_TURNS else {}
        store.submit({**gone, **records(turn), LATEST: b"%d" % turn}, told)
        loop.run_what_waits()
        loop.run_until(has_room)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
