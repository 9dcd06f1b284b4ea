"""Solves one state of a plan in a process of its own: `python -m overlane.node.items.solver`, packed values in and out.

A solver in a thread would share the interpreter with the event loop and hold messages up.
"""

import asyncio
import os
import sys

import msgspec

from overlane.errors import Unavailable
from overlane.items.plans import DomainPlan, DomainState, pack_plan, solve, unpack_plan

SOLVE_WITHIN_S = 120.0


class _Job(msgspec.Struct, array_like=True):
    plan: bytes
    missing: tuple[str, ...]


async def solve_apart(plan: DomainPlan, missing: frozenset[str]) -> DomainState:
    """Unavailable if it does not succeed."""
    job = msgspec.msgpack.encode(_Job(pack_plan(plan), tuple(sorted(missing))))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "overlane.node.items.solver"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    try:
        async with asyncio.timeout(SOLVE_WITHIN_S):
            answer, _ = await process.communicate(job)
        return msgspec.msgpack.decode(answer, type=DomainState)
    except (TimeoutError, msgspec.DecodeError, OSError) as error:
        raise Unavailable("the solver", f"{type(error).__name__}, status {process.returncode}") from None
    finally:
        if process.returncode is None:
            process.kill()


def main() -> None:
    if hasattr(os, "nice"):
        os.nice(10)
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Job)
    state = solve(unpack_plan(job.plan), frozenset(job.missing))
    sys.stdout.buffer.write(msgspec.msgpack.encode(state))


if __name__ == "__main__":
    main()
