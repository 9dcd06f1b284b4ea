"""A connection to an AMQP 1.0 broker: drives the state machine of a client (`overlane.amqp.client`) over a socket."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress

from overlane.amqp.client.client import IDLE_MS, AmqpClient
from overlane.amqp.client.contract import ClientEvent, ClientOptions
from overlane.amqp.codec.malformed import AmqpError

CONNECT_S = 10.0
READ_BYTES = 2**18


class AmqpConnection:
    """`on_event` is called for everything that happens, never within a call of the owner's."""

    def __init__(
        self,
        options: ClientOptions,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        on_event: Callable[[ClientEvent], None],
    ) -> None:
        self._client = AmqpClient(options._replace(hostname=host))
        self._host, self._port, self._tls = host, port, tls
        self._on_event = on_event
        self._writer: asyncio.StreamWriter | None = None
        self._will_write = False
        self._loop = asyncio.get_running_loop()

    async def run(self) -> str:
        """Until the connection is lost; why."""
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        except (OSError, TimeoutError) as error:
            return str(error) or "no answer"
        self._writer = writer
        pinging = asyncio.create_task(self._ping())
        try:
            self._write()
            return await self._read(reader, writer)
        except AmqpError as error:
            return error.told
        except (OSError, TimeoutError) as error:
            return str(error) or f"silent for {2 * IDLE_MS // 1000} s"
        finally:
            pinging.cancel()
            self._client.close()
            with suppress(OSError, RuntimeError):
                self._write()
                writer.close()

    def send(self, number: int, address: str, data: bytes, is_settled: bool) -> None:
        """Answered by `Sent` or `NotSent`, or lost with the connection."""
        events = self._client.send(number, address, data, is_settled)
        if events:
            self._loop.call_soon(self._tell, events)
        self._write_soon()

    def accept(self, delivery_id: int) -> None:
        self._client.accept(delivery_id)
        self._write_soon()

    def reject(self, delivery_id: int, condition: str, reason: str) -> None:
        self._client.reject(delivery_id, condition, reason)
        self._write_soon()

    # Inside

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        while True:
            async with asyncio.timeout(2 * IDLE_MS / 1000):
                data = await reader.read(READ_BYTES)
            if not data:
                return "the broker closed the connection"
            self._tell(self._client.receive(data))
            self._write()
            await writer.drain()

    def _tell(self, events: list[ClientEvent]) -> None:
        for event in events:
            self._on_event(event)

    async def _ping(self) -> None:
        """So often that the broker does not take it for gone."""
        while True:
            within_ms = self._client.peer_idle_ms
            await asyncio.sleep(1.0 if within_ms is None else max(0.1, within_ms / 2000))
            if within_ms is not None:
                self._client.ping()
                self._write()

    def _write_soon(self) -> None:
        """Once for all that happens now."""
        if not self._will_write:
            self._will_write = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._will_write = False
        data = self._client.taken()
        if data and self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)
