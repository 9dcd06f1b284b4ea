"""Real-time priority for a process.

Preferably `SCHED_DEADLINE`: a guaranteed share of a core in every millisecond, before all other scheduling classes. The
second choice is `SCHED_FIFO`; the kernel suspends all such processes together for 50 ms once they have used 950 ms of a
second, which brokers that are just starting do.

Python's `os` has no name for the class, and old C libraries have no function: the system call is used directly.
"""

import ctypes
import os
import platform
import struct

from overlane.core.units import MS, US, Nanos

BUDGET_NS: Nanos = 600 * US
PERIOD_NS: Nanos = 1 * MS
"""The reservation. The kernel rejects it if all reservations together exceed 95 % of the cores. Unused reservations of
others may be used too."""
PRIORITY = 10
"""Within the real-time class."""

_SYSTEM_CALLS = {"x86_64": 314, "aarch64": 274}
_SCHED_DEADLINE = 6
_RESET_ON_FORK, _RECLAIM = 1, 2
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")

_libc = ctypes.CDLL(None, use_errno=True)


def raise_priority() -> bool:
    """Give this process real-time priority; False if not permitted."""
    return _by_deadline() or _by_priority()


def reset_priority() -> None:
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _by_deadline() -> bool:
    number = _SYSTEM_CALLS.get(platform.machine())
    if number is None:
        return False
    flags = _RESET_ON_FORK | _RECLAIM
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, _SCHED_DEADLINE, flags, 0, 0, BUDGET_NS, PERIOD_NS, PERIOD_NS)
    return bool(_libc.syscall(number, 0, wanted, 0) == 0)


def _by_priority() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except OSError:
        return False
    return True
