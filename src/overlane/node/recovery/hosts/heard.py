"""Whether this host reaches a broker, for hosts that ask.

What has come over an overlay link a moment ago is an answer at once. Otherwise the broker is probed, where its
replication endpoint is: overlay links may be idle, and not every host has one. Bytes of each link are looked at ten
times a second: no link pays for it with every packet.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic_ns

from overlane.core.units import MS, Nanos
from overlane.node.links.overlay import Overlay

LOOK_S = 0.1
LATELY: Nanos = 150 * MS

Probe = Callable[[str], Awaitable[int]]
"""0, NOT_REACHED or NOT_LINKED."""


class HeardBrokers:
    def __init__(
        self, overlay: Callable[[], Overlay | None], probe: Probe, now: Callable[[], Nanos] = monotonic_ns
    ) -> None:
        self._overlay = overlay
        self._probe = probe
        self._now = now
        self._heard: dict[str, tuple[int, Nanos]] = {}
        """By broker: bytes that have come, and when that was last seen to grow."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def end(self) -> None:
        self._timer.cancel()

    async def ago_ns(self, broker: str) -> int:
        heard = self._heard.get(broker)
        if heard is not None and (ago := self._now() - heard[1]) < LATELY:
            return ago
        return await self._probe(broker)

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
