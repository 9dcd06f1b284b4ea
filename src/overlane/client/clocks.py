"""The clocks of this machine, and an identifier of its current boot (see `stamp`)."""

import os
import secrets
import time
from functools import cache
from pathlib import Path

from overlane.client.stamp import Moment
from overlane.core.units import Nanos

now_ns = time.monotonic_ns


def moment(now: Nanos | None = None) -> Moment:
    return Moment(_boot(), now_ns() if now is None else now, time.time_ns())


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")
    except OSError:
        # On other systems it is unknown whether two processes have the same monotonic clock.
        return f"{os.getpid():x}{secrets.token_hex(8)}"
