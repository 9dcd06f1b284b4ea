"""Messages of `overlane up` while it starts and stops.

A fast start prints nothing. After some seconds, the missing brokers and links are printed every few seconds. The first
SIGTERM or Ctrl-C stops all brokers in order; another one kills the remaining ones at once.
"""

import asyncio
from collections.abc import Callable

from overlane.node.end_signals import heed_end_signals, was_told_to_end

FIRST_AFTER_S = 3.0
AGAIN_AFTER_S = 10.0
UP = "up"

Tell = Callable[[str, str], None]
"""Called with who reports, and what."""


class StartupReport:
    def __init__(self, tell: Tell, first_after_s: float = FIRST_AFTER_S, again_after_s: float = AGAIN_AFTER_S) -> None:
        self._tell = tell
        self._first_after_s, self._again_after_s = first_after_s, again_after_s
        self._is_ready = False
        self._is_stopping = False
        self.awaited: Callable[[], str] = lambda: ""
        """What is missing now."""

    async def run(self) -> None:
        """Until everything is ready, or cancelled."""
        pause_s = self._first_after_s
        while not self._is_ready:
            await asyncio.sleep(pause_s)
            pause_s = self._again_after_s
            missing = self.awaited()
            if missing and not self._is_ready and not self.is_stopping:
                self._tell(UP, f"waiting for {missing}")

    @property
    def is_stopping(self) -> bool:
        """Known from the moment of the signal, before the event loop has heard of it."""
        return self._is_stopping or was_told_to_end()

    def ready(self, show: Callable[[], None]) -> None:
        """Everything serves: show it, unless it is being stopped."""
        self._is_ready = True
        if not self.is_stopping:
            show()

    def stop_on_signals(self, stop: Callable[[], object], end_at_once: Callable[[], None]) -> None:
        """Call `stop` on the first signal, `end_at_once` on all others."""

        def come() -> None:
            if self._is_stopping:
                self._tell(UP, "ending at once")
                end_at_once()
                return
            self._is_stopping = True
            self._tell(UP, "stopping")
            stop()

        heed_end_signals(asyncio.get_running_loop(), come)
