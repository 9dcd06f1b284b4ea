"""Channel reviewing in the event loop of a broker whose routes are limited."""

import asyncio
import logging

from overlane.core.units import SECOND
from overlane.errors import Unavailable
from overlane.node.channels.solver import solve_apart
from overlane.node.driver import Driver
from overlane.turn.channel_review import REVIEW_EVERY, ChannelReview

log = logging.getLogger("overlane.channels")


class ChannelReviewing:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._review = ChannelReview(driver.core.config.routes_max)
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(lambda done: driver.failures.look_at(done, "the mapping to channels failed"))

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(REVIEW_EVERY / SECOND)

    async def _look(self) -> None:
        core = self._driver.core
        if core.config.routes_max != self._review.routes_max:
            self._review = ChannelReview(core.config.routes_max)
        if not self._review.routes_max:
            return
        for problem in self._review.look(core.shared_demand(), core.shared_routes(), self._driver.clock.now()):
            try:
                channels = await solve_apart(problem)
            except Unavailable as error:
                log.warning("topics are not mapped to channels: %s", error)
                continue
            if core.config.routes_max != self._review.routes_max:
                return  # they have changed meanwhile
            event = self._review.solved(problem, channels, core.shared_routes())
            if event is not None:
                self._driver.tell_core(event)
                waste_bps, unicast_bps = self._review.costs_bps[problem.qos]
                told = "%d sets of brokers share %d routes: %.0f bit/s are unsolicited, %.0f bit/s are sent one by one"
                log.info(told, len(problem.sets), problem.channels, waste_bps, unicast_bps)
