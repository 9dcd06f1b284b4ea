"""Where this process listens for replication, as others reach it: announced, and again when the machine has moved.

A process that listens on all addresses is reached at the one by which it reaches ZooKeeper. When an address of the
machine comes or goes (`links.address_watch`), that may be another one.
"""

import asyncio
import logging
from collections.abc import Callable

from overlane.membership.endpoint import Endpoint
from overlane.node.links.multipath.address_watch import AddressWatch

SETTLES_S = 0.2
"""Between a change of addresses and the route by which it is known."""

log = logging.getLogger("overlane.recovery")


class OwnEndpoint:
    def __init__(
        self, listening: Endpoint, find_host: Callable[[], str | None], otherwise: str, announce: Callable[[str], None]
    ) -> None:
        """`find_host`: the address of this machine on the way to ZooKeeper, None if there is no way: then `otherwise`.
        It may block."""
        self._listening = listening
        self._find_host = find_host
        self._announce = announce
        self._looking: asyncio.Task[None] | None = None
        self._watch = AddressWatch(lambda _: self.look_again())
        if listening.is_wildcard():
            self._host = find_host() or otherwise
            self._watch.open()
        else:
            self._host = listening.host
        announce(str(Endpoint(self._host, listening.port)))

    def look_again(self) -> None:
        """Addresses have changed."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        await asyncio.sleep(SETTLES_S)
        # In a thread: names are resolved by servers that may not be reached at this moment.
        host = await asyncio.to_thread(self._find_host)
        if host is not None and host != self._host:
            self._host = host
            log.info("new replication address: %s", Endpoint(host, self._listening.port))
            self._announce(str(Endpoint(host, self._listening.port)))

    def close(self) -> None:
        self._watch.close()
        if self._looking is not None:
            self._looking.cancel()
