"""The admin API of a broker that another host serves: only whether it is alive, and why it is not ready."""

from collections.abc import Callable

from overlane.adminapi.views import HealthView, ReadyView
from overlane.network.schema import Endpoint
from overlane.node.admin.operations import Answer, Asked, Operation, json_answer
from overlane.node.admin.server import Admin


class WaitingPage:
    def __init__(self, endpoint: Endpoint, why: Callable[[], str]) -> None:
        self._why = why
        operations = (
            Operation("GET", "/health", "Liveness check.", _health, {200: HealthView}, is_open=True),
            Operation("GET", "/ready", "Readiness check.", self._ready, {503: ReadyView}, is_open=True),
        )
        admin = Admin(endpoint, operations, None)
        self.start, self.stop = admin.start, admin.stop

    async def _ready(self, _: Asked) -> Answer:
        return json_answer(ReadyView(ready=False, reasons=(self._why(),)), 503)


async def _health(_: Asked) -> Answer:
    return json_answer(HealthView(alive=True))
