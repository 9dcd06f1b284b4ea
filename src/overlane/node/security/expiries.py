"""Clients that logged in with a token are disconnected when it ends: then they have to show a new one."""

import asyncio
import time
from collections.abc import Callable

from overlane.pubsub.contract.connection import ClientConnection, Phase

LOOK_EVERY_S = 1.0


class Expiries:
    """Belongs to one event loop. Looks while there are such clients, and forgets those that have gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, end: Callable[[ClientConnection], None]) -> None:
        self._loop = loop
        self._end = end
        self._until_s: dict[ClientConnection, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._until_s)

    def add(self, connection: ClientConnection, until_s: float) -> None:
        """`until_s`: Unix time."""
        self._until_s[connection] = until_s
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        now_s = time.time()
        gone = [one for one in self._until_s if one.phase is Phase.CLOSED]
        ended = [one for one, until_s in self._until_s.items() if until_s <= now_s and one.phase is not Phase.CLOSED]
        for connection in (*gone, *ended):
            del self._until_s[connection]
        self._timer = self._loop.call_later(LOOK_EVERY_S, self._look) if self._until_s else None
        for connection in ended:
            self._end(connection)
