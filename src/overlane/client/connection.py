"""One connection to a broker under asyncio. It reports data, room to write and the end, and knows nothing of MQTT."""

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


class ConnectionOwner(Interface):
    """Receives the events of a connection."""

    def received(self, connection: "BrokerConnection", data: bytes) -> None: ...

    def writable(self, connection: "BrokerConnection", writable: bool) -> None: ...

    def lost(self, connection: "BrokerConnection", reason: str) -> None: ...


class BrokerConnection(asyncio.Protocol):
    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is over."""

    # Called by the driver

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def read_on(self, reading: bool) -> bool:
        """Resume or pause reading. True if this is a change."""
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

    # Called by asyncio

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


async def open_connection(
    address: Address, context: ssl.SSLContext | None, server_name: str | None, owner: ConnectionOwner
) -> BrokerConnection:
    loop = asyncio.get_running_loop()
    name = (server_name or address.host) if context is not None else None
    _, connection = await loop.create_connection(
        lambda: BrokerConnection(owner), address.host, address.port, ssl=context, server_hostname=name
    )
    return connection


def explained(error: BaseException) -> str:
    """The error of the system as a short text."""
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
            # A host with several addresses, each with its own error.
            reasons = dict.fromkeys(explained(OSError(int(number), os.strerror(int(number)))) for number in numbers)
            return ", ".join(reasons)
        case OSError() if error.strerror:
            return error.strerror.lower() if isinstance(error.errno, int) and error.errno > 0 else error.strerror
        case _:
            return str(error) or type(error).__name__
