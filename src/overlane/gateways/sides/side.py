"""What a gateway needs of the connection to a broker, and what it tells."""

import asyncio
import random
from abc import ABC, abstractmethod
from typing import Protocol as Interface

from overlane.gateways.message import BridgedMessage

PAUSE_FIRST_S, PAUSE_MAX_S = 0.2, 10.0


class SideHost(Interface):
    """What happens at a side. Receipts are the side's own values."""

    def up(self) -> None: ...

    def down(self, reason: str, *, forgot_sent: bool = False, forgot_receipts: bool = False) -> None:
        """The connection is lost. `forgot_sent`: so is what was given to `send` and is not answered.
        `forgot_receipts`: what has arrived and is not acknowledged will arrive again."""

    def trouble(self, reason: str) -> None:
        """It is connected, but something is wrong, such as a topic that does not exist there."""

    def arrived(self, message: BridgedMessage, receipt: object | None) -> None: ...

    def accepted(self, number: int) -> None: ...

    def refused(self, number: int, reason: str, *, is_final: bool) -> None: ...

    def kept(self, messages: int | None) -> None:
        """How many messages the broker still keeps for this side, where it is known."""


class Side(ABC):
    """The connection to one broker. `send` and `acknowledge` return at once."""

    def __init__(self, host: SideHost) -> None:
        self.host = host

    @abstractmethod
    async def run(self) -> None:
        """Connect, and connect again, until cancelled. Raises only what another attempt cannot mend."""

    @abstractmethod
    def send(self, number: int, message: BridgedMessage) -> None:
        """Answered by `accepted` or `refused`, or lost with the connection where `down` says so."""

    @abstractmethod
    def acknowledge(self, receipt: object) -> None:
        """A message that has arrived is at the other side for good."""


class Pauses:
    """How long to wait between attempts to connect."""

    def __init__(self) -> None:
        self._pause_s = PAUSE_FIRST_S

    def connected(self) -> None:
        self._pause_s = PAUSE_FIRST_S

    async def wait(self) -> None:
        await asyncio.sleep(self._pause_s * (0.5 + random.random() / 2))
        self._pause_s = min(PAUSE_MAX_S, 2 * self._pause_s)
