"""A mirror's failure detection: it connects to its primary, and reports when the primary is lost.

    refused     a connection that was there is closed, and the same address refuses another: the process has ended.
                Told at once, and again with every refusal.
    silent      nothing heard for `silence`, and no neighbour reaches it (`recovery.hosts.watching`): told, repeatedly.

The report contains the time for which better candidates have precedence (`recovery.hosts.succession`).

A connection that may be dead is closed and opened again: when the primary is silent, and when one of the two has
changed its address, which existing connections do not show.

A primary from which this process has received nothing may just be starting, like all processes after a power cut: it
gets `START_GRACE_S`. The lag of this process's event loop is added to the allowed silence.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress

from overlane.core.units import MS, SECOND, Nanos
from overlane.membership.endpoint import Endpoint
from overlane.node.recovery.hosts.directory import HostDirectory
from overlane.node.recovery.replication.replica_driver import ReplicaDriver
from overlane.node.recovery.replication.replication import Replication
from overlane.recovery.events import PrimaryLost
from overlane.recovery.hosts.host_records import endpoint_name
from overlane.recovery.hosts.questions import NOT_LINKED, NOT_REACHED
from overlane.recovery.hosts.succession import claim_delay
from overlane.recovery.hosts.watching import AskNeighbour, Lost, Probe, WatchEffect, Watcher, WatchSettings, WatchState
from overlane.recovery.replica_set import ReplicaSet

START_GRACE_S = 10.0
LOOK: Nanos = 50 * MS
LOOK_MIN: Nanos = 2 * MS
"""How often is looked whether anything is due."""
LAG_MIN: Nanos = 30 * MS
REDIAL_MIN_S, REDIAL_MAX_S = 0.02, 0.5
IDLE_S = 0.2
"""How often is looked whether there is a primary to dial; a connection that is closed is noticed at once."""

log = logging.getLogger("overlane.recovery")


class PrimaryWatch:
    def __init__(
        self, driver: ReplicaDriver, directory: HostDirectory, replication: Replication, settings: WatchSettings
    ) -> None:
        self._driver = driver
        self._directory = directory
        self._replication = replication
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._started = driver.now()
        self._watched: tuple[int, str] | None = None
        """Epoch and host."""
        self._watcher = Watcher(settings, self._started)
        self._has_grace = True
        """Until the primary is heard for the first time."""
        self._heard_of: set[str] = set()
        """Addresses at which the primary has greeted in this life of the process."""
        self._is_told = False
        """Whether the present silence is in the log."""
        self._dialled = "", ""
        """Name and address of the primary that was dialled last."""
        self._closed = asyncio.Event()
        replication.on_closed = self._closed.set
        self._questions: set[asyncio.Task[None]] = set()
        self._tasks = [self._loop.create_task(self._dial_always()), self._loop.create_task(self._look_always())]

    def end(self) -> None:
        for task in (*self._tasks, *self._questions):
            task.cancel()

    def heard(self, host: str) -> None:
        """Something has come from this host."""
        if self._watched is None or host != self._watched[1]:
            return
        now = self._driver.now()
        if self._has_grace:
            self._has_grace = False
            self._watcher = Watcher(self._settings, now)
        if self._watcher.heard(now) and self._is_told:
            log.info("%s is reachable again", self._driver.broker)
        self._is_told = False

    def moved(self) -> None:
        """This host has another address."""
        if (found := self._primary()) is not None:
            self._replication.hang_up(found[1])

    def _primary(self) -> tuple[ReplicaSet, str] | None:
        """The replica set and the host of its primary, if that is another one."""
        replica = self._driver.replica
        value = replica.replica_set
        if value is None or value.is_forgotten or replica.is_primary:
            return None
        if value.primary == self._driver.storage.stored.storage:
            return None
        host = value.primary_host
        return (value, host) if host != self._driver.host else None

    # Dialling

    async def _dial_always(self) -> None:
        pause_s = REDIAL_MIN_S
        while True:
            found = self._primary()
            name = "" if found is None else endpoint_name(self._driver.broker, found[1])
            address = self._directory.endpoints.get(name)
            if found is not None and self._dialled[0] == name and address not in (None, self._dialled[1]):
                self._replication.hang_up(found[1])
            if found is None or address is None or self._replication.is_linked(found[1]):
                pause_s = REDIAL_MIN_S
                self._closed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_S):
                        await self._closed.wait()
                continue
            value, _ = found
            try:
                self._dialled = name, address
                link = await self._replication.dial(name, endpoint_of(address))
            except ConnectionRefusedError:
                self._refused(value, address)
            except (OSError, TimeoutError) as error:
                log.debug("%s at %s: %s", self._driver.broker, address, error)
            else:
                if link is not None:
                    self._heard_of.add(address)
                    pause_s = REDIAL_MIN_S
                    continue
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, REDIAL_MAX_S)

    def _refused(self, value: ReplicaSet, address: str) -> None:
        if address in self._heard_of:
            self._watcher.connection_refused()
            self._tell_lost(value, is_dead=True)

    def _tell_lost(self, value: ReplicaSet, *, is_dead: bool) -> None:
        driver = self._driver
        delay = claim_delay(driver.broker, driver.host, value, self._directory.hosts)
        driver.handle(PrimaryLost(value.epoch, is_dead, delay))

    # Silence

    async def _look_always(self) -> None:
        while True:
            before = self._driver.now()
            pause = min(LOOK, max(LOOK_MIN, self._watcher.next_deadline() - before))
            await asyncio.sleep(pause / SECOND)
            now = self._driver.now()
            lag = now - before - pause
            if lag > LAG_MIN:
                self._watcher.lagged(lag, now)
            self._look(now)

    def _look(self, now: Nanos) -> None:
        found = self._primary()
        if found is None:
            self._watched = None
            return
        value, host = found
        if self._watched != (value.epoch, host):
            self._watched = value.epoch, host
            self._is_told = False
            self._has_grace = not self._heard_of
            grace = int(START_GRACE_S * SECOND) if self._has_grace else 0
            self._watcher = Watcher(self._settings, max(now, self._started + grace))
        if now >= self._watcher.next_deadline():
            self._carry_out(self._watcher.tick(self._neighbours(host), now), value)

    def _neighbours(self, primary: str) -> list[str]:
        """Hosts that may be asked, besides those of the two."""
        own = (primary, self._driver.host, self._driver.broker)
        return [one for one in sorted(self._directory.hosts) if one not in own and self._at(one) is not None]

    def _at(self, host: str) -> str | None:
        return self._directory.endpoints.get(endpoint_name(host, host))

    def _carry_out(self, effects: list[WatchEffect], value: ReplicaSet) -> None:
        for effect in effects:
            match effect:
                case AskNeighbour(neighbour, round_):
                    self._spawn(self._ask(neighbour, round_, value))
                case Probe():
                    self._replication.probe(value.primary_host)
                case Lost(is_dead):
                    if not self._is_told:
                        log.warning("%s is silent; no other host has reached it", self._driver.broker)
                    self._is_told = True
                    self._tell_lost(value, is_dead=is_dead)
                    self._replication.hang_up(value.primary_host)
                case _:
                    pass

    def _spawn(self, asking: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(asking)
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    async def _ask(self, neighbour: str, round_: int, value: ReplicaSet) -> None:
        address, watcher = self._at(neighbour), self._watcher
        if address is None:
            return
        try:
            name, within_s = endpoint_name(neighbour, neighbour), self._settings.silence / SECOND
            ago_ns = await self._replication.ask(name, endpoint_of(address), self._driver.broker, within_s)
        except (OSError, TimeoutError):
            return  # no answer
        if ago_ns == NOT_LINKED:
            return
        heard_ago = None if ago_ns == NOT_REACHED else max(0, ago_ns)
        if watcher is not self._watcher:
            return
        was_asking = watcher.state is WatchState.ASKING
        self._carry_out(watcher.answered(neighbour, round_, heard_ago, self._driver.now()), value)
        if was_asking and watcher.state is WatchState.ALIVE:
            # It lives, and has not answered the probe: the connection is dead, since one of us has another address.
            log.info("%s runs, but its connection is silent: reconnecting", self._driver.broker)
            self._replication.hang_up(value.primary_host)


def endpoint_of(address: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    return Endpoint(host.strip("[]"), int(port))
