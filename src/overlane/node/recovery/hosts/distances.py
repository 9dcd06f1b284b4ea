"""Round trips from this process to other hosts, measured when they are needed: where a place for a copy is free, and
there is a choice.

A host is measured again after `AGAIN_S`, when it is at another address, and soon if it did not answer. The shortest of
a few questions counts: what is longer was spent in queues of the two processes.
"""

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic

from overlane.core.units import NEVER, Nanos
from overlane.node.recovery.hosts.primary_watch import endpoint_of
from overlane.node.recovery.replication.replication import Replication
from overlane.recovery.hosts.host_records import endpoint_name

QUESTIONS = 3
WITHIN_S = 1.0
AGAIN_S = 600.0
SILENT_AGAIN_S = 10.0
AT_ONCE_MAX = 16


class Distances:
    def __init__(self, replication: Replication, on_measured: Callable[[], None]) -> None:
        self._replication = replication
        self._on_measured = on_measured
        self._loop = asyncio.get_running_loop()
        self.round_trip: dict[str, Nanos] = {}
        """By host; NEVER where it did not answer."""
        self._measured: dict[str, tuple[str, float]] = {}
        """The address that was asked, and when."""
        self._asking: dict[str, asyncio.Task[None]] = {}

    def end(self) -> None:
        for task in self._asking.values():
            task.cancel()

    def want(self, hosts: Mapping[str, str]) -> bool:
        """Whether all of these hosts are measured, each at its address; those that are not are measured now."""
        for name in self._measured.keys() - hosts.keys():
            del self._measured[name]
            self.round_trip.pop(name, None)
        for name, address in hosts.items():
            if name not in self._asking and len(self._asking) < AT_ONCE_MAX and self._is_due(name, address):
                self._asking[name] = self._loop.create_task(self._measure(name, address))
        return hosts.keys() <= self.round_trip.keys()

    def _is_due(self, name: str, address: str) -> bool:
        asked, at = self._measured.get(name, ("", 0.0))
        after_s = SILENT_AGAIN_S if self.round_trip.get(name) == NEVER else AGAIN_S
        return asked != address or monotonic() - at >= after_s

    async def _measure(self, name: str, address: str) -> None:
        try:
            found = await self._replication.round_trip(
                endpoint_name(name, name), endpoint_of(address), QUESTIONS, WITHIN_S
            )
        except (OSError, TimeoutError):
            found = NEVER
        del self._asking[name]
        self._measured[name] = address, monotonic()
        self.round_trip[name] = found
        self._on_measured()
