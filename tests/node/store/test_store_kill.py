"""Kill -9 at any moment: what was told to be durable is there, and every turn is there whole or not at all."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from storebench import Loop, Turns, content
from storewriter import expected, latest

from overlane.node.store.durable import Store

WRITER = Path(__file__).parent / "storewriter.py"


def told_until_killed(directory: Path, tells: int) -> list[int]:
    """The turns that a process told to be durable, killed as soon as there were so many of them."""
    command = [sys.executable, str(WRITER), str(directory)]
    told: list[int] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            while len(told) < tells:
                told.append(int(process.stdout.readline()))
        finally:
            process.kill()
        # What it had told before the end reached it counts too; the last line may be half there.
        told += [int(line) for line in process.stdout.read().split("\n")[:-1]]
    return told


@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 4), pytest.param(2, 25, marks=pytest.mark.slow)], ids=["a few times", "many times"]
)
def test_a_store_that_is_killed_keeps_its_word(tmp_path: Path, seed: int, rounds: int) -> None:
    luck, turn = Random(seed), 0
    for _ in range(rounds):
        told = told_until_killed(tmp_path, tells=luck.choice([0, 1, luck.randrange(300)]))
        assert told == list(range(turn + 1, turn + 1 + len(told)))
        store = Store.open(tmp_path, Turns(Loop()).loop.soon)
        found = content(store)
        store.close()
        assert (store.salvaged, store.quarantined) == (None, []), f"seed {seed}"
        assert latest(found) >= turn + len(told), f"seed {seed}"
        turn = latest(found)
        assert found == expected(turn), f"seed {seed}"
