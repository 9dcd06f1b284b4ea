"""The line: one connection under asyncio. It passes on what happens, and knows nothing of MQTT."""

import asyncio
import os
import re
import ssl
from typing import Protocol as Interface
from typing import cast

from overlane.client.address import Address

_ERRNO = re.compile(r"\[Errno (\d+)\]")

SEND_BUFFER_BYTES = 256 * 1024
"""Beyond this, publications wait in the outbox instead of in the transport."""


class Owner(Interface):
    """Who is told what happens on the line."""

    def received(self, line: "Line", data: bytes) -> None: ...

    def writable(self, line: "Line", writable: bool) -> None: ...

    def lost(self, line: "Line", reason: str) -> None: ...


class Line(asyncio.Protocol):
    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is over."""

    # What the application's side does

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def read_on(self, reading: bool) -> bool:
        """Whether to read what the broker sends. True if that is news."""
        if reading == self._reading or self._transport is None or self._transport.is_closing():
            return False
        self._reading = reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
        return True

    def close(self) -> None:
        """After what has been written is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=SEND_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        self._owner.received(self, data)

    def pause_writing(self) -> None:
        self._owner.writable(self, False)

    def resume_writing(self) -> None:
        self._owner.writable(self, True)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._owner.lost(self, "the broker closed the connection" if error is None else explained(error))
        if not self.gone.done():
            self.gone.set_result(None)


async def open_line(address: Address, context: ssl.SSLContext | None, server_name: str | None, owner: Owner) -> Line:
    loop = asyncio.get_running_loop()
    name = (server_name or address.host) if context is not None else None
    _, line = await loop.create_connection(
        lambda: Line(owner), address.host, address.port, ssl=context, server_hostname=name
    )
    return line


def explained(error: BaseException) -> str:
    """What the system says, in a few words."""
    match error:
        case TimeoutError():
            return "no answer in time"
        case ConnectionRefusedError():
            return "connection refused: nothing listens there"
        case ConnectionResetError() | BrokenPipeError() | ConnectionAbortedError():
            return "the connection was reset"
        case ssl.SSLCertVerificationError():
            return f"the certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {error.reason or error}"
        case OSError() if (numbers := _ERRNO.findall(str(error))) and not error.strerror:
            # A host with several addresses, and each has its own trouble.
            reasons = dict.fromkeys(explained(OSError(int(number), os.strerror(int(number)))) for number in numbers)
            return ", ".join(reasons)
        case OSError() if error.strerror:
            return error.strerror.lower() if isinstance(error.errno, int) and error.errno > 0 else error.strerror
        case _:
            return str(error) or type(error).__name__
