"""The plan that a broker follows, and earlier plans for a rollback."""

from overlane.adminapi.views.view import View
from overlane.network.plan import Plan


class StoredPlanView(View, frozen=True, kw_only=True):
    """A plan that the broker keeps and can roll back to."""

    version: int
    made_ns: int
    source: str


class PlanView(View, frozen=True, kw_only=True):
    version: int
    """Version of the plan in use; 0: none."""
    newest: int
    """The highest version received; a new plan must have a higher one."""
    plan: Plan | None
    kept: tuple[StoredPlanView, ...]
