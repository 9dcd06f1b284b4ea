"""Network namespaces of a wide area: created, configured and removed without leftovers.

Their names contain the process that created them: `overlane-PID.NUMBER-SITE`. Whoever creates new ones first removes
those whose process no longer exists.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from overlane.errors import Unavailable

DIRECTORY = Path("/run/netns")
PREFIX = "overlane"
END_S = 5.0

_NAME = re.compile(rf"{PREFIX}-([0-9]+)\.[0-9]+-.+")


def name_of(owner: int, number: int, site: str) -> str:
    return f"{PREFIX}-{owner}.{number}-{site}"


def path_of(name: str) -> Path:
    return DIRECTORY / name


def make(name: str) -> None:
    """An empty namespace with nothing but its loopback. Unavailable."""
    ip(["netns", "add", name])


def ip(arguments: Sequence[str], commands: Sequence[str] = ()) -> None:
    """Run `ip`, with several commands at once where there are some; Unavailable with what it says if it fails."""
    batch = ["-batch", "-"] if commands else []
    try:
        done = subprocess.run(
            ["ip", *arguments, *batch], input="\n".join(commands), capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise Unavailable("ip", "not found; it is in the package iproute2") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(f"ip {' '.join(arguments)}", said[0] if said else f"status {done.returncode}")


def remove(names: Sequence[str]) -> None:
    """End whatever still runs in these namespaces and remove them. Those that are gone already are no fault."""
    there = [name for name in names if path_of(name).exists()]
    until = time.monotonic() + END_S
    while (running := processes_in(there)) and time.monotonic() < until:
        for process in running:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    for name in there:
        # Somebody else may remove them at the same time: what counts is that they are gone.
        with suppress(Unavailable):
            ip(["netns", "delete", name])


def owned_by(owner: int, number: int) -> list[str]:
    return [name for name in _all_names() if name.startswith(name_of(owner, number, ""))]


def remove_leftovers() -> list[str]:
    """Remove the namespaces of owners that are no more; their names."""
    left = [name for name in _all_names() if (owner := _NAME.fullmatch(name)) and not _is_alive(int(owner[1]))]
    remove(left)
    return left


def _all_names() -> list[str]:
    return sorted(path.name for path in DIRECTORY.glob(f"{PREFIX}-*")) if DIRECTORY.is_dir() else []


def _is_alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def processes_in(names: Sequence[str]) -> list[int]:
    """All processes in these namespaces, but not this one."""
    inodes = set()
    for name in names:
        with suppress(OSError):
            inodes.add(path_of(name).stat().st_ino)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "ns/net").stat().st_ino in inodes and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found
