"""The admin service of a running broker: loop lag and rates, views, metrics and operations, protected by its token."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from overlane.adminapi.topic_filters import TopicFilters
from overlane.network.endpoints import Endpoints
from overlane.network.plan import Plan
from overlane.network.schema import Network
from overlane.node.admin.delivery_stats import DeliveryStats
from overlane.node.admin.inspection import Inspection
from overlane.node.admin.link_operations import LinkOperations
from overlane.node.admin.loop_lag import LagTotals, LoopLag
from overlane.node.admin.operations import Operations
from overlane.node.admin.plan_history import PlanHistory
from overlane.node.admin.plan_operations import PlanOperations
from overlane.node.admin.retained_operations import RetainedOperations
from overlane.node.admin.server import Admin
from overlane.node.admin.stream_operations import StreamOperations
from overlane.node.driver import Driver
from overlane.node.links.overlay import Overlay
from overlane.node.logs.event_log import EventLog
from overlane.node.reconfiguring import Reconfiguring
from overlane.node.store.timed import TimedStore
from overlane.secret import Secret
from overlane.secret_file import read_token

log = logging.getLogger("overlane.admin")


class AdminService:
    def __init__(
        self,
        name: str,
        network: Network,
        endpoints: Endpoints,
        driver: Driver,
        store: TimedStore,
        data: Path | None,
        overlay: Overlay,
        reconfiguring: Reconfiguring,
        is_chaotic: bool,
    ) -> None:
        """ConfigError when the token cannot be read."""
        self._driver = driver
        self._loop_lag = LoopLag(asyncio.get_running_loop(), self._count, self._on_second)
        tally, logbook = DeliveryStats(name, TopicFilters(network)), EventLog(driver.core, driver.clock)
        driver.observing.observers += (tally, logbook)
        self.inspection = Inspection(
            name, network, endpoints, driver, overlay, store, self._loop_lag, tally, logbook, data is not None
        )
        self.links = LinkOperations(driver, reconfiguring, overlay, is_chaotic=is_chaotic)
        self._plans = PlanOperations(driver, PlanHistory(data))
        retained, streams = RetainedOperations(driver), StreamOperations(driver)
        operations = (
            *Operations(self.inspection).all,
            *retained.all,
            *self.links.all,
            *self._plans.all,
            *streams.all,
        )
        self._admin = Admin(endpoints.admin, operations, token_of(network), lambda: driver.logins, driver.failures)

    async def start(self) -> None:
        """Unavailable if the address cannot be had."""
        self._loop_lag.start()
        await self._admin.start()

    def follow_plan(self) -> None:
        """Follow the plan from before the restart, if there was one."""
        self._plans.begin()

    def tell_plans(self, on_followed: Callable[[Plan | None], None]) -> None:
        """Of the plan that is followed, and of all later ones; None: none is."""
        self._plans.tell(on_followed)

    async def stop(self) -> None:
        await self._admin.stop()
        self._loop_lag.stop()

    def reconfigure(self, network: Network, token: Secret | None) -> None:
        self.inspection.network = network
        self.inspection.tally.filters = TopicFilters(network)
        self._admin.token = token

    def _on_second(self) -> None:
        self._driver.journal.tick(self._driver.clock.now())
        self._driver.look()

    def _count(self) -> LagTotals:
        counters = self._driver.server.counters
        return LagTotals(counters.messages_in, counters.messages_out, counters.bytes_in, counters.bytes_out)


def token_of(network: Network) -> Secret | None:
    """The admin token, if the file names one; ConfigError when it cannot be read."""
    path = network.security.admin_token
    if path is None:
        return None
    return read_token(path)
