"""A benchmark that goes before the other work of a machine: its processes, and those that they have started."""

import atexit
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

EVERY_S = 0.5
"""How often is looked for processes that have been started since."""


def go_first(nice: int) -> None:
    """From now on, and what is started later too; nothing where `nice` is 0, or it is not allowed.

    Where the kernel schedules sessions as groups, priorities of processes count within their session only, and brokers
    and ZooKeeper servers have sessions of their own: so the groups get the priority too. The benchmark gets a session
    of its own for that. Started from a terminal it cannot, and its session gets its former priority back at the end."""
    if nice:
        try:
            os.setsid()
        except PermissionError:
            _restore_at_exit()
        done: set[int] = set()
        _set_all(nice, done)
        threading.Thread(target=_set_always, args=(nice, done), daemon=True).start()


def _restore_at_exit() -> None:
    group = Path("/proc/self/autogroup")
    with suppress(OSError, ValueError):  # "/autogroup-12 nice 0"
        former = int(group.read_text().split()[-1])
        atexit.register(lambda: group.write_text(str(former)))


def _set_always(nice: int, done: set[int]) -> None:
    while True:
        time.sleep(EVERY_S)
        _set_all(nice, done)


def _set_all(nice: int, done: set[int]) -> None:
    for process in {os.getpid(), *children_of(os.getpid())} - done:
        done.add(process)
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process, nice)
            Path(f"/proc/{process}/autogroup").write_text(str(nice))


def children_of(pid: int) -> list[int]:
    """All processes below one, as /proc has them."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in task.read_text().split()]
        except OSError:
            continue
    return [one for child in found for one in (child, *children_of(child))]
