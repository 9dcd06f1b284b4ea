"""Solves a mapping problem in a process of its own: `python -m overlane.node.channels.solver`, packed values in, out.

A solver in a thread would share the interpreter with the event loop and hold messages up.
"""

import asyncio
import os
import sys
import time

import msgspec

from overlane.errors import Unavailable
from overlane.planning.channels import Advertisement, Channel, plan_channels
from overlane.turn.channel_review import UNICAST_WEIGHT, MappingProblem

SOLVE_WITHIN_S = 60.0
SEARCH_S = 10.0
"""After this the best mapping so far is taken."""


class _Job(msgspec.Struct, array_like=True):
    advertisements: tuple[Advertisement, ...]
    channels: int


async def solve_apart(problem: MappingProblem) -> tuple[Channel, ...]:
    """Unavailable if it does not succeed."""
    job = msgspec.msgpack.encode(_Job(problem.advertisements, problem.channels))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "overlane.node.channels.solver"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    try:
        async with asyncio.timeout(SOLVE_WITHIN_S):
            answer, _ = await process.communicate(job)
        return msgspec.msgpack.decode(answer, type=tuple[Channel, ...])
    except (TimeoutError, msgspec.DecodeError, OSError) as error:
        raise Unavailable("the solver", f"{type(error).__name__}, status {process.returncode}") from None
    finally:
        if process.returncode is None:
            process.kill()


def main() -> None:
    if hasattr(os, "nice"):
        os.nice(10)
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Job)
    until = time.monotonic() + SEARCH_S
    plan = plan_channels(job.advertisements, job.channels, UNICAST_WEIGHT, stop=lambda: time.monotonic() > until)
    sys.stdout.buffer.write(msgspec.msgpack.encode(plan.channels))


if __name__ == "__main__":
    main()
