"""Polling: snapshots of all brokers at once. A slow broker delays no other: its snapshot comes with a later poll."""

import asyncio

from overlane.adminapi.async_client import AsyncAdminClient
from overlane.adminapi.client import RequestFailed
from overlane.adminapi.views import SnapshotView


class Poller:
    def __init__(self, clients: dict[str, AsyncAdminClient]) -> None:
        self._clients = clients
        self._pending: dict[str, asyncio.Task[SnapshotView | str]] = {}

    async def poll(self, after: dict[str, int], within_s: float) -> dict[str, SnapshotView | str]:
        """By broker, what has arrived within this time from this poll or an earlier one; or why the request failed."""
        for name in self._clients:
            if name not in self._pending:
                self._pending[name] = asyncio.create_task(self._request(name, after[name]))
        await asyncio.wait(self._pending.values(), timeout=within_s)
        done = {name: task.result() for name, task in self._pending.items() if task.done()}
        for name in done:
            del self._pending[name]
        return done

    async def close(self) -> None:
        for task in self._pending.values():
            task.cancel()
        await asyncio.gather(*self._pending.values(), return_exceptions=True)
        for client in self._clients.values():
            client.close()

    async def _request(self, name: str, after: int) -> SnapshotView | str:
        try:
            return await self._clients[name].snapshot(after)
        except RequestFailed as reason:
            return str(reason)
