"""The operations of the admin API for plans.

The values of a plan for this broker and its links go to the core, which advertises them to the other brokers; the
values for other brokers are advertised by those. The plan history is written in a thread: an operator may wait for the
disk, messages must not.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from overlane.adminapi.views import ErrorView, PlanView, StoredPlanView
from overlane.core.events import SetFailureRisk
from overlane.core.units import SECOND
from overlane.network.plan import BadPlan, Plan, read_plan
from overlane.node.admin.operations import BODY, Answer, Asked, BadAdminRequest, Operation, Parameter, json_answer
from overlane.node.admin.plan_history import PlanHistory, StalePlan
from overlane.node.driver import Driver

CLOCKS_DIFFER_NS = 3_600 * SECOND

log = logging.getLogger("overlane.plans")

_CHECK = Parameter("check", "true: only check whether the plan would be accepted.")
_TO = Parameter("to", "Version to return to (default: the previous one); 0: no plan.")


class PlanOperations:
    def __init__(self, driver: Driver, book: PlanHistory) -> None:
        self._driver = driver
        self._book = book
        self._one_at_a_time = asyncio.Lock()
        self._on_followed: list[Callable[[Plan | None], None]] = []
        """Called with every plan that is followed from now on; None: none is."""
        refused = {400: ErrorView, 409: ErrorView, 507: ErrorView}
        self.all: tuple[Operation, ...] = (
            Operation("GET", "/plan", "The plan in use, and the plans that are kept.", self._show, {200: PlanView}),
            Operation("PUT", "/plan", "Use a plan.", self._take, {204: None, **refused}, (_CHECK,), Plan),
            Operation(
                "POST",
                "/plan/rollback",
                "Return to an earlier plan.",
                self._roll_back,
                {204: None, **refused},
                (_TO,),
            ),
        )

    def begin(self) -> None:
        if self._book.followed is not None:
            self._follow()

    async def _show(self, _: Asked) -> Answer:
        book = self._book
        async with self._one_at_a_time:  # a thread may be changing it
            kept = tuple(
                StoredPlanView(version=plan.version, made_ns=plan.made_ns, source=plan.source)
                for plan in sorted(book.kept.values(), key=lambda plan: plan.version)
            )
            return json_answer(PlanView(version=book.version, newest=book.newest, plan=book.followed, kept=kept))

    async def _take(self, asked: Asked) -> Answer:
        try:
            plan = read_plan(asked[BODY].encode())
            if plan.made_ns > time.time_ns() + CLOCKS_DIFFER_NS:
                raise BadPlan("made_ns", str(plan.made_ns), "a time in the past")
            async with self._one_at_a_time:
                if asked.get("check") == "true":
                    self._book.check(plan)
                    return Answer(204, b"")
                await asyncio.get_running_loop().run_in_executor(None, self._book.take, plan)
        except BadPlan as bad:
            raise BadAdminRequest(str(bad)) from None
        except StalePlan as stale:
            return json_answer(ErrorView(error=str(stale)), 409)
        except OSError as error:
            return _unkept(error)
        self._follow()
        return Answer(204, b"")

    async def _roll_back(self, asked: Asked) -> Answer:
        text = asked.get("to")
        if text is not None and not (text.isascii() and text.isdigit()):
            raise BadAdminRequest(f"to={text[:40]!a}: allowed is the version of a plan that is kept, or 0")
        try:
            async with self._one_at_a_time:
                version = None if text is None else int(text)
                await asyncio.get_running_loop().run_in_executor(None, self._book.roll_back, version)
        except StalePlan as stale:
            return json_answer(ErrorView(error=str(stale)), 409)
        except OSError as error:
            return _unkept(error)
        self._follow()
        return Answer(204, b"")

    def _follow(self) -> None:
        plan, me = self._book.followed, self._driver.core.name
        if plan is None:
            log.info("no plan in use; using the network file only")
            self._driver.tell_core(SetFailureRisk(None, {}))
        else:
            log.info("using plan %d", plan.version)
            self._driver.tell_core(SetFailureRisk(plan.failure_of(me), plan.failures_around(me)))
        for on_followed in self._on_followed:
            on_followed(plan)

    def tell(self, on_followed: Callable[[Plan | None], None]) -> None:
        """Of the plan that is followed, and of all later ones; None: none is."""
        self._on_followed.append(on_followed)
        if self._book.followed is not None:
            on_followed(self._book.followed)


def _unkept(error: OSError) -> Answer:
    return json_answer(ErrorView(error=f"the plan cannot be kept: {(error.strerror or str(error)).lower()}"), 507)
