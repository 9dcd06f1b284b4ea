"""Dialling: a neighbour is dialled until there is a connection, and again when it is lost, at its addresses in turn.

    idle -- attempt failed --> pause, which grows --> idle
    idle -- there is a connection, dialled by either end --> linked -- it is lost --> pause --> idle

New addresses: an idle neighbour is dialled there at once. A connection to an address that was removed stays until a new
address accepts connections; then it is closed, and the neighbour is dialled at the new address.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from random import Random

from overlane.core.units import SECOND, Nanos
from overlane.membership.endpoint import Endpoint
from overlane.node.failures import Failures
from overlane.node.links.dialling.redialling import PAUSE_MIN, Redialling

DIAL_S = 5.0
MOVED = "its address has changed"

log = logging.getLogger("overlane.link")


class Dialling:
    """`dial` connects to a neighbour at an address, and says whether there is a link with it afterwards; it raises
    OSError or TimeoutError. `close` closes the connection to it, for this reason."""

    def __init__(
        self,
        me: str,
        now: Callable[[], Nanos],
        luck: Random,
        failures: Failures,
        dial: Callable[[str, Endpoint], Awaitable[bool]],
        is_cut: Callable[[str], bool],
        close: Callable[[str, str], None],
    ) -> None:
        self._me = me
        self._now = now
        self._luck = luck
        self._failures = failures
        self._dial = dial
        self._is_cut = is_cut
        self._close = close
        self._addresses: dict[str, tuple[Endpoint, ...]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._idle: dict[str, asyncio.Event] = {}
        """Set while there is no connection to a neighbour."""
        self._told_in_vain: dict[str, set[str]] = {}

    def set(self, name: str, addresses: tuple[Endpoint, ...], *, is_linked: bool, dialled_at: Endpoint | None) -> None:
        """Where a neighbour is dialled from now on. `is_linked`: there is a connection, which we have dialled at
        `dialled_at`, or else the neighbour has."""
        idle = self._idle.setdefault(name, asyncio.Event())
        if not is_linked:
            idle.set()
        if self._addresses.get(name) == addresses:
            return
        self._addresses[name] = addresses
        self._cancel(self._following, name)
        if not addresses:
            self._cancel(self._tasks, name)
        elif idle.is_set() or name not in self._tasks:
            self._cancel(self._tasks, name)
            self._start(self._tasks, name, self._keep_dialling(name))
        elif dialled_at is not None and dialled_at not in addresses:
            self._start(self._following, name, self._follow(name))

    def forget(self, name: str) -> None:
        self._addresses.pop(name, None)
        self._cancel(self._tasks, name)
        self._cancel(self._following, name)

    def end(self) -> None:
        for name in list(self._addresses):
            self.forget(name)

    def linked(self, name: str) -> None:
        self._idle[name].clear()

    def lost(self, name: str) -> None:
        self._idle[name].set()

    def _start(self, tasks: dict[str, asyncio.Task[None]], name: str, work: Coroutine[None, None, None]) -> None:
        task = tasks[name] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: self._failures.look_at(done, f"dialling {name}"))

    @staticmethod
    def _cancel(tasks: dict[str, asyncio.Task[None]], name: str) -> None:
        if (task := tasks.pop(name, None)) is not None:
            task.cancel()

    async def _keep_dialling(self, name: str) -> None:
        redialling = Redialling(self._luck)
        # Who has the greater name waits a little at first: the other's call usually comes before.
        if name < self._me:
            await asyncio.sleep(2 * PAUSE_MIN / SECOND)
        while True:
            redialling.lasted(await self._until_idle(name))
            addresses = self._addresses[name]
            address = redialling.next(addresses)
            if not self._is_cut(name) and await self._try(name, address):
                redialling.lasted(await self._until_idle(name))
            await asyncio.sleep(redialling.pause_ns(len(addresses)) / SECOND)

    async def _try(self, name: str, address: Endpoint) -> bool:
        try:
            is_linked = await self._dial(name, address)
        except (OSError, TimeoutError) as error:
            self._tell_in_vain(name, address, error)
            return False
        self._told_in_vain.pop(name, None)
        return is_linked

    async def _until_idle(self, name: str) -> Nanos:
        """How long there has been a connection, dialled by either end."""
        since_ns = self._now()
        await self._idle[name].wait()
        return self._now() - since_ns

    async def _follow(self, name: str) -> None:
        """The connection leads to where the neighbour does not want to be reached any more."""
        redialling, addresses = Redialling(self._luck), self._addresses[name]
        while not self._idle[name].is_set():
            address = redialling.next(addresses)
            if await self._listens(name, address):
                if not self._idle[name].is_set():
                    self._close(name, MOVED)
                return
            await asyncio.sleep(redialling.pause_ns(len(addresses)) / SECOND)

    async def _listens(self, name: str, address: Endpoint) -> bool:
        try:
            async with asyncio.timeout(DIAL_S):
                _, writer = await asyncio.open_connection(address.host, address.port)
        except (OSError, TimeoutError) as error:
            self._tell_in_vain(name, address, error)
            return False
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return True

    def _tell_in_vain(self, name: str, address: Endpoint, error: Exception) -> None:
        """Each reason once until it is reached: it may just not be there yet. A certificate is for people to mend."""
        why = f"{name} at {address}: {str(error) or 'no answer'}"
        told = self._told_in_vain.setdefault(name, set())
        level = logging.WARNING if isinstance(error, ssl.SSLError) else logging.INFO
        log.log(logging.DEBUG if why in told else level, "cannot reach %s", why)
        told.add(why)
