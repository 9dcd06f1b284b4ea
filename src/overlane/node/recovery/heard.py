"""Which neighbours this host has heard lately over the overlay, for hosts that ask.

Bytes of each link are looked at ten times a second: no link pays for it with every packet.
"""

import asyncio
from collections.abc import Callable
from time import monotonic_ns

from overlane.core.units import Nanos
from overlane.node.links.overlay import Overlay
from overlane.recovery.questions import NOT_LINKED, NOT_REACHED

LOOK_S = 0.1


class HeardBrokers:
    def __init__(self, overlay: Callable[[], Overlay | None], now: Callable[[], Nanos] = monotonic_ns) -> None:
        self._overlay = overlay
        self._now = now
        self._heard: dict[str, tuple[int, Nanos]] = {}
        """By broker: bytes that have come, and when that was last seen to grow."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def end(self) -> None:
        self._timer.cancel()

    def ago_ns(self, broker: str) -> int:
        overlay = self._overlay()
        if overlay is None or broker not in overlay.neighbours:
            return NOT_LINKED
        if broker not in overlay.links or broker not in self._heard:
            return NOT_REACHED
        return self._now() - self._heard[broker][1]

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        overlay = self._overlay()
        links = {} if overlay is None else overlay.links
        for name, link in links.items():
            before = self._heard.get(name)
            if before is None or before[0] != link.bytes_in:
                self._heard[name] = link.bytes_in, self._now()
        for name in self._heard.keys() - links.keys():
            del self._heard[name]
