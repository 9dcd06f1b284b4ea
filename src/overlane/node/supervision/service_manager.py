"""Notifications to systemd: readiness, and the watchdog (sd_notify(3), `Type=notify`, `WatchdogSec=`).

One datagram per message, to the Unix socket in the environment of systemd; without it nothing is sent. A broker that
makes no progress sends no more watchdog notifications, and systemd restarts it.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, MutableMapping
from functools import cache

SOCKET = "NOTIFY_SOCKET"
WATCHDOG_US = "WATCHDOG_USEC"
WATCHDOG_PID = "WATCHDOG_PID"

log = logging.getLogger("overlane.node")


class ServiceManager:
    """Taken from the environment, which is cleared of it: processes that this one starts speak for themselves alone."""

    def __init__(self, environment: MutableMapping[str, str] | None = None, pid: int = 0) -> None:
        environment = os.environ if environment is None else environment
        address = environment.pop(SOCKET, "")
        period_us = environment.pop(WATCHDOG_US, "")
        watched = environment.pop(WATCHDOG_PID, "")
        # A name that begins with @ is one of the abstract namespace.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        is_for_us = watched in ("", str(pid or os.getpid()))
        self.watchdog_s = int(period_us) / 1e6 if period_us.isdigit() and is_for_us and address else 0.0
        """Within how many seconds it expects a sign of life; 0 if it expects none."""
        self.gets_on: Callable[[], bool] = lambda: True
        """Whether a sign of life would be true. The loop runs when it is asked."""

    def ready(self, told: str) -> None:
        self._send(f"READY=1\nSTATUS={told}")

    async def keep_alive(self) -> None:
        """Send a sign of life twice in the time that systemd waits for one, while the broker gets on."""
        while self.watchdog_s:
            if self.gets_on():
                self._send("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / 2)

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end:
            end.setblocking(False)
            try:
                end.connect(self._address)
                end.send(message.encode())
            except OSError as error:
                # A sign of life that was lost is followed by another one.
                log.debug("the service manager cannot be reached: %s", error)


@cache
def service_manager() -> ServiceManager:
    """The one of this process."""
    return ServiceManager()
