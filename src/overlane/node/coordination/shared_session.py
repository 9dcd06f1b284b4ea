"""One session with a coordination service, used by several parts of a process.

Each part uses it like a separate session. All parts get events of the connection and of watches, in order; each gets
only the answers to its own requests. A part that is added while there is a connection gets `Connected` at once: it need
not wait for a connection and a session.

The session ends with the process. Ephemeral nodes of a part that is closed stay until then, or until another part
replaces them.
"""

import asyncio
from collections.abc import Callable
from itertools import count

from overlane.coordination.contract import Answered, Connected, Deliver, Event, Request, Service, Suspended


class SharedSession:
    def __init__(self, connect: Callable[[Deliver], Service]) -> None:
        self._parts: list[_Part] = []
        self._asked: dict[int, tuple[_Part, int]] = {}
        """By the number of the request: who asked, and under which number."""
        self._numbers = count(1)
        self._connected: Connected | None = None
        self._service = connect(self._heard)

    def part(self, deliver: Deliver) -> Service:
        """Those that came first hear first."""
        part = _Part(self, deliver)
        self._parts.append(part)
        if self._connected is not None:
            asyncio.get_running_loop().call_soon(self._greet, part)
        return part

    def close(self) -> None:
        """End the session."""
        self._service.close()

    def ask(self, part: "_Part", number: int, request: Request) -> None:
        own = next(self._numbers)
        self._asked[own] = part, number
        self._service.ask(own, request)

    def _greet(self, part: "_Part") -> None:
        if self._connected is not None and not part.is_connected:
            part.hear(Connected(self._connected.session, is_new=True))

    def _heard(self, event: Event) -> None:
        match event:
            case Answered(number, answer):
                part, asked = self._asked.pop(number)
                part.hear(Answered(asked, answer))
                return
            case Connected():
                self._connected = event
            case Suspended():
                self._connected = None
            case _:
                pass
        self._parts = [part for part in self._parts if not part.is_closed]
        for part in self._parts:
            part.hear(event)


class _Part:
    """A `contract.Service`."""

    def __init__(self, session: SharedSession, deliver: Deliver) -> None:
        self._session = session
        self._deliver = deliver
        self.is_connected = False
        self.is_closed = False

    def ask(self, number: int, request: Request) -> None:
        self._session.ask(self, number, request)

    def close(self) -> None:
        """It hears nothing more. In any thread."""
        self.is_closed = True

    def hear(self, event: Event) -> None:
        if self.is_closed:
            return
        match event:
            case Connected():
                self.is_connected = True
            case Suspended() if not self.is_connected:
                return  # it has not heard of this connection
            case Suspended():
                self.is_connected = False
            case _:
                pass
        self._deliver(event)
