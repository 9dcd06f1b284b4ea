"""The command that a host runs after a takeover (`on_takeover` of [recovery]): to move an address, to change a DNS
name, or to send a notification.

Its parameters are environment variables, and its time limit is `WITHIN_S`. The takeover does not wait for it; a failure
is logged and has no other effect.

    OVERLANE_BROKER       the broker that is continued            OVERLANE_EPOCH     of its replica set
    OVERLANE_HOST         the host that continues it              OVERLANE_FORMER_HOST   where it ran before
    OVERLANE_MQTT, ...    the address of each kind of listener    OVERLANE_OVERLAY, OVERLANE_ADMIN
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

WITHIN_S = 30.0
OUTPUT_SHOWN = 500
"""Characters of what a command that fails has printed."""

log = logging.getLogger("overlane.recovery")


@dataclass(frozen=True, slots=True)
class Taken:
    """A broker that is continued here."""

    broker: str
    epoch: int
    host: str
    former_host: str
    addresses: Mapping[str, str]
    """Of listeners by their kind, `overlay` and `admin`."""

    def environment(self) -> dict[str, str]:
        own = {
            "OVERLANE_BROKER": self.broker,
            "OVERLANE_EPOCH": str(self.epoch),
            "OVERLANE_HOST": self.host,
            "OVERLANE_FORMER_HOST": self.former_host,
        }
        return own | {f"OVERLANE_{kind.upper()}": address for kind, address in self.addresses.items()}


def former_host(known: str, primary: str, here: str) -> str:
    """Where the broker ran before. `primary` of its replica set may be this host already, which continues it just now:
    then it is the host that was `known`."""
    return known if known and primary == here else primary


async def run_hook(command: tuple[str, ...], taken: Taken, within_s: float = WITHIN_S) -> bool:
    """Whether it has succeeded. Never raises: what goes wrong is logged."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env={**os.environ, **taken.environment()},
            start_new_session=True,
        )
    except OSError as error:
        log.error("on_takeover of %s: %s: %s", taken.broker, command[0], error.strerror)
        return False
    try:
        async with asyncio.timeout(within_s):
            output, _ = await process.communicate()
    except TimeoutError:
        log.error("on_takeover of %s: %s did not end within %g s", taken.broker, command[0], within_s)
        return False
    finally:
        _kill_all(process)
        await process.wait()
    if process.returncode != 0:
        shown = output.decode(errors="replace").strip()[-OUTPUT_SHOWN:]
        log.error("on_takeover of %s: %s: status %s: %s", taken.broker, command[0], process.returncode, shown)
        return False
    log.info("on_takeover of %s: %s has run", taken.broker, command[0])
    return True


def _kill_all(process: Process) -> None:
    """What it has started, too: none of it outlives the time that it has."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
