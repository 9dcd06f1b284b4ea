"""Processes of mirrors: started while they are wanted, again when they fail, and ended by the end of their input."""

import asyncio
import sys
from pathlib import Path

from overlane.node.recovery.children import DEPOSED, Children
from overlane.node.recovery.hosted import Hosted
from waiting import eventually_async

ONE, OTHER = Hosted("one", "edge", "west"), Hosted("other", "edge", "west")
PROGRAM = """
import sys
log = open(sys.argv[1], "a")
print("started", file=log, flush=True)
if sys.argv[2] != "0" and open(sys.argv[1]).read().count("started") < 2:
    sys.exit(int(sys.argv[2]))
sys.stdin.read()
print("ended", file=log, flush=True)
"""


def told(folder: Path, hosted: Hosted) -> list[str]:
    file = folder / hosted.broker
    return file.read_text().split() if file.exists() else []


def children(folder: Path, status: int = 0) -> Children:
    return Children(
        lambda hosted: [sys.executable, "-c", PROGRAM, str(folder / hosted.broker), str(status)],
    )


def test_a_mirror_runs_while_it_is_wanted_and_ends_when_its_input_is_closed(tmp_path: Path) -> None:
    async def go() -> None:
        made = children(tmp_path)
        made.want(frozenset({ONE, OTHER}))
        await eventually_async(lambda: told(tmp_path, ONE) == told(tmp_path, OTHER) == ["started"], "both run", 60)
        made.want(frozenset({OTHER}))
        await eventually_async(lambda: told(tmp_path, ONE) == ["started", "ended"], "one has ended", 60)
        assert told(tmp_path, OTHER) == ["started"]
        await made.end()
        assert told(tmp_path, OTHER) == ["started", "ended"]

    asyncio.run(go())


def test_a_mirror_that_is_not_wanted_any_more_while_it_starts_is_ended_and_not_killed(tmp_path: Path) -> None:
    async def go() -> None:
        made = children(tmp_path)
        made.want(frozenset({ONE}))
        await asyncio.sleep(0)  # the process is being started
        made.want(frozenset())
        await eventually_async(lambda: told(tmp_path, ONE) == ["started", "ended"], "it has ended", 60)
        await made.end()

    asyncio.run(go())


def test_a_mirror_that_fails_or_has_to_begin_anew_is_started_again(tmp_path: Path) -> None:
    async def go(folder: Path, status: int) -> None:
        folder.mkdir()
        made = children(folder, status)
        made.want(frozenset({ONE}))
        await eventually_async(lambda: told(folder, ONE) == ["started", "started"], "it runs again", 60)
        await made.end()

    asyncio.run(go(tmp_path / "failed", 1))
    asyncio.run(go(tmp_path / "deposed", DEPOSED))


def test_a_command_that_cannot_be_run_is_tried_again(tmp_path: Path) -> None:
    async def go() -> None:
        commands = iter([["/no/such/program"]])
        last = [sys.executable, "-c", PROGRAM, str(tmp_path / "one"), "0"]
        made = Children(lambda _: next(commands, last))
        made.want(frozenset({ONE}))
        await eventually_async(lambda: told(tmp_path, ONE) == ["started"], "it runs", 60)
        await made.end()

    asyncio.run(go())
