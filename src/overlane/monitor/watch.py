"""The watch: asks the brokers again and again, keeps the past, and tells every page what changed.

It decides nothing: what the answers mean is the observer's to say. A page that does not read what it is told is let go;
it asks anew when it can, and is then given the past once more.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from time import monotonic, time

from overlane.monitor.asking import Round, Source
from overlane.monitor.observing import Observer
from overlane.monitor.past import TARGET, Head, Past
from overlane.mqtt.secret import Secret
from overlane.network.endpoints import endpoints
from overlane.network.schema import Network

EVERY_S = 0.5
BROKERS_PER_S = 200
"""With very many brokers all of them are asked less often."""
SHORTEST_S = 0.05
UNREAD_MAX = 200
"""Changes that a page may be behind."""

log = logging.getLogger("overlane.monitor")


class Watch:
    """`clock` counts seconds; the pictures count them from the watch's beginning."""

    def __init__(
        self,
        network: Network,
        title: str,
        token: Secret | None,
        *,
        is_chaotic: bool = False,
        can_restart: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._clock = clock
        self._began_s = clock()
        self.sources = {one.name: Source(endpoints(network, one.name).admin, token) for one in network.brokers}
        self.observer = Observer(network)
        self._past = Past(
            Head(
                title=title,
                is_live=True,
                began_ms=int(time() * 1000),
                is_chaotic=is_chaotic,
                can_restart=can_restart,
                target=TARGET,
                picture=self.observer.picture,
            )
        )
        self._round = Round(self.sources)
        self._every_s = max(EVERY_S, len(self.sources) / BROKERS_PER_S)
        self._pages: set[asyncio.Queue[bytes | None]] = set()
        self._is_wanted_now = asyncio.Event()

    @property
    def pages(self) -> int:
        """How many are told."""
        return len(self._pages)

    @property
    def now_s(self) -> float:
        return self._clock() - self._began_s

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                began_s = self._clock()
                await self._look()
                self._is_wanted_now.clear()
                pause_s = max(SHORTEST_S, self._every_s - (self._clock() - began_s))
                try:
                    await asyncio.wait_for(self._is_wanted_now.wait(), pause_s)
                except TimeoutError:
                    continue
        finally:
            await self._round.end()
            for page in self._pages:
                page.put_nowait(None)

    def look_soon(self) -> None:
        """Something was done to the overlay: pages should not wait for the next turn."""
        self._is_wanted_now.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """The past, and what changes from now on, for one page."""
        page: asyncio.Queue[bytes | None] = asyncio.Queue(UNREAD_MAX + 1)
        past = list(self._past.lines())
        self._pages.add(page)
        try:
            yield b"".join(past)
            while (line := await page.get()) is not None:
                yield line
        finally:
            self._pages.discard(page)

    async def _look(self) -> None:
        after = {name: self.observer.after(name) for name in self.sources}
        answers = await self._round.answers(after, self._every_s)
        try:
            line = self._past.add(self.observer.look(self.now_s, answers))
        except Exception:
            # A defect of ours: one look is missing, and the page goes on.
            log.exception("a look at the overlay failed")
            return
        for page in list(self._pages):
            if page.qsize() >= UNREAD_MAX:
                self._pages.discard(page)
                page.put_nowait(None)
            else:
                page.put_nowait(line)
