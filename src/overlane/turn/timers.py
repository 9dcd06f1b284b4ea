"""The timers that client connections need: implemented by asyncio's event loop and by the simulator's virtual time."""

from collections.abc import Callable
from typing import Protocol


class LoopTimer(Protocol):
    def cancel(self) -> None: ...


class LoopTimers(Protocol):
    def call_soon(self, callback: Callable[[], object], /) -> object: ...
    def call_later(self, delay: float, callback: Callable[[], object], /) -> LoopTimer:
        """After so many seconds."""
