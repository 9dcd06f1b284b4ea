"""Oversight of a running broker: its pulse is taken, its views are served, its token is asked for."""

import asyncio
import logging
from pathlib import Path

from overlane.mqtt.secret import Secret
from overlane.network.endpoints import Endpoints
from overlane.network.schema import Network
from overlane.node.admin import Admin
from overlane.node.driver import Driver
from overlane.node.linkoperations import LinkOperations
from overlane.node.logbook import Logbook
from overlane.node.operations import Operations
from overlane.node.overlay import Overlay
from overlane.node.planbook import PlanBook
from overlane.node.planoperations import PlanOperations
from overlane.node.pulse import Pulse, Totals
from overlane.node.secretfile import others_can_read, read_token
from overlane.node.streamoperations import StreamOperations
from overlane.node.survey import Survey
from overlane.node.tally import Rows, Tally
from overlane.node.timedstore import TimedStore

log = logging.getLogger("overlane.admin")


class Oversight:
    def __init__(
        self,
        name: str,
        network: Network,
        endpoints: Endpoints,
        driver: Driver,
        store: TimedStore,
        data: Path | None,
        overlay: Overlay,
        is_chaotic: bool,
    ) -> None:
        """ConfigError when the token cannot be read."""
        self._driver = driver
        self._pulse = Pulse(asyncio.get_running_loop(), self._count, self._on_second)
        tally, logbook = Tally(name, Rows(network)), Logbook(driver.core, driver.clock)
        driver.observers += (tally, logbook)
        self.survey = Survey(name, network, endpoints, driver, store, self._pulse, tally, logbook, data is not None)
        self.links = LinkOperations(driver, overlay, is_chaotic=is_chaotic)
        self._plans = PlanOperations(driver, PlanBook(data))
        streams = StreamOperations(driver)
        operations = (*Operations(self.survey).all, *self.links.all, *self._plans.all, *streams.all)
        self._admin = Admin(endpoints.admin, operations, token_of(network), lambda: driver.logins)

    async def start(self) -> None:
        """Unavailable if the address cannot be had."""
        self._pulse.start()
        await self._admin.start()

    def follow_plan(self) -> None:
        """Follow the plan of before the start, if there was one."""
        self._plans.begin()

    async def stop(self) -> None:
        await self._admin.stop()
        self._pulse.stop()

    def reconfigure(self, network: Network, token: Secret | None) -> None:
        self.survey.network = network
        self.survey.tally.rows = Rows(network)
        self._admin.token = token

    def _on_second(self) -> None:
        self._driver.journal.tick(self._driver.clock.now())

    def _count(self) -> Totals:
        counters = self._driver.server.counters
        return Totals(counters.messages_in, counters.messages_out, counters.bytes_in, counters.bytes_out)


def token_of(network: Network) -> Secret | None:
    """The admin token, if the file names one; ConfigError when it cannot be read."""
    path = network.security.admin_token
    if path is None:
        return None
    if others_can_read(path):
        log.warning("%s can be read by others than its owner", path)
    return read_token(path)
