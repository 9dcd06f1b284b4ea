"""To run before everything else on the machine.

Where the kernel grants it, by a deadline (`SCHED_DEADLINE`): so much of a processor in every millisecond, before
everybody else, whatever priorities others have. Real-time priorities (`SCHED_FIFO`) are the second choice. The kernel
takes the processor away from all of those together for 50 ms when they have used up 950 ms of a second, and brokers
with such priorities that are just being started do.

The class has no name in `os`, and old C libraries have no function for it: it is the system call itself.
"""

import ctypes
import os
import platform
import struct

from overlane.core.units import MS, US, Nanos

BUDGET_NS: Nanos = 600 * US
PERIOD_NS: Nanos = 1 * MS
"""What is granted: a kernel refuses when all together would be more than 95 % of its processors. What others have been
granted and do not use may be used besides."""
PRIORITY = 10
"""Among those with a real-time priority."""

_SYSTEM_CALLS = {"x86_64": 314, "aarch64": 274}
_SCHED_DEADLINE = 6
_RESET_ON_FORK, _RECLAIM = 1, 2
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")

_libc = ctypes.CDLL(None, use_errno=True)


def hurry() -> bool:
    """This process from now on; False if it may not."""
    return _by_deadline() or _by_priority()


def calm_down() -> None:
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
