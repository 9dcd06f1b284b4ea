"""The live monitor: polls the brokers, keeps the history, and sends every delta to all pages.

It only drives: the observer interprets the responses. A page that does not read fast enough is disconnected; it
reconnects and gets the history again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from time import monotonic, time

from overlane.adminapi.async_client import AsyncAdminClient
from overlane.monitor.history import TARGET, Head, History
from overlane.monitor.observer import Observer
from overlane.monitor.polling import Poller
from overlane.network.endpoints import endpoints
from overlane.network.schema import Network
from overlane.secret import Secret

POLL_S = 0.5
BROKERS_PER_S = 200
"""With very many brokers, polls are less frequent."""
PAUSE_S_MIN = 0.05
UNREAD_MAX = 200
"""Deltas queued per page."""

log = logging.getLogger("overlane.monitor")


class LiveMonitor:
    """`clock` counts seconds; states count them from the start of the monitor."""

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
        self.clients = {
            one.name: AsyncAdminClient(endpoints(network, one.name).admin, token) for one in network.brokers
        }
        self.observer = Observer(network)
        self._history = History(
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
        self._poller = Poller(self.clients)
        self._every_s = max(POLL_S, len(self.clients) / BROKERS_PER_S)
        self._pages: set[asyncio.Queue[bytes | None]] = set()
        self._poll_requested = asyncio.Event()

    @property
    def pages(self) -> int:
        """Number of connected pages."""
        return len(self._pages)

    @property
    def now_s(self) -> float:
        return self._clock() - self._began_s

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                began_s = self._clock()
                await self._poll()
                self._poll_requested.clear()
                pause_s = max(PAUSE_S_MIN, self._every_s - (self._clock() - began_s))
                try:
                    async with asyncio.timeout(pause_s):
                        await self._poll_requested.wait()
                except TimeoutError:
                    continue
        finally:
            await self._poller.close()
            for page in self._pages:
                page.put_nowait(None)

    def poll_soon(self) -> None:
        """Poll at once, since an action was carried out."""
        self._poll_requested.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """The history and all further deltas, for one page."""
        page: asyncio.Queue[bytes | None] = asyncio.Queue(UNREAD_MAX + 1)
        history = list(self._history.lines())
        self._pages.add(page)
        try:
            yield b"".join(history)
            while (line := await page.get()) is not None:
                yield line
        finally:
            self._pages.discard(page)

    async def _poll(self) -> None:
        after = {name: self.observer.after(name) for name in self.clients}
        answers = await self._poller.poll(after, self._every_s)
        try:
            line = self._history.add(self.observer.update(self.now_s, answers))
        except Exception:
            # A bug: one poll is lost, and the monitor continues.
            log.exception("processing a poll failed")
            return
        for page in list(self._pages):
            if page.qsize() >= UNREAD_MAX:
                self._pages.discard(page)
                page.put_nowait(None)
            else:
                page.put_nowait(line)
