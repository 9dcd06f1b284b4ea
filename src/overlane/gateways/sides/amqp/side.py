"""A side with an AMQP 1.0 broker. What comes in waits at the broker: in a queue, or in a durable subscription.

A message that comes in is accepted when the overlay has it; one that no rule has a name for is rejected, so that the
broker can put it aside. A message that goes out counts as accepted when the broker has accepted it.
"""

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from overlane.amqp.codec.malformed import NOT_FOUND, AmqpError
from overlane.gateways.message import BridgedMessage
from overlane.gateways.sides.amqp.addresses import Addresses, chosen_name
from overlane.gateways.sides.amqp.client import IDLE_MS, AmqpClient
from overlane.gateways.sides.amqp.content import read_content, write_content
from overlane.gateways.sides.amqp.contract import ClientEvent, ClientOptions, Delivered, NotSent, Ready, Sent
from overlane.gateways.sides.side import Pauses, Side, SideHost
from overlane.network.schema import Endpoint

CONNECT_S = 10.0
READ_BYTES = 2**18
LAST_WORD_S = 1.0


@dataclass(frozen=True, slots=True)
class AmqpOptions:
    endpoints: tuple[Endpoint, ...]
    client: ClientOptions
    """`hostname` is that of the endpoint."""
    addresses: Addresses
    filters: tuple[str, ...]
    qos: int
    tls: ssl.SSLContext | None


class AmqpReceipt(NamedTuple):
    connection: "_Connection"
    delivery_id: int
    is_unnamed: bool


class AmqpSide(Side):
    def __init__(self, host: SideHost, options: AmqpOptions) -> None:
        super().__init__(host)
        self._options = options
        self._connection: _Connection | None = None

    async def run(self) -> None:
        pauses = Pauses()
        attempt = 0
        while True:
            endpoint = self._options.endpoints[attempt % len(self._options.endpoints)]
            attempt += 1
            connection = _Connection(self.host, self._options, endpoint, pauses)
            try:
                self._connection = connection
                reason = await connection.run()
            finally:
                self._connection = None
            self.host.down(f"{endpoint}: {reason}", forgot_sent=True, forgot_receipts=True)
            await pauses.wait()

    def send(self, number: int, message: BridgedMessage) -> None:
        if self._connection is not None:
            self._connection.send(number, message)

    def acknowledge(self, receipt: object) -> None:
        assert isinstance(receipt, AmqpReceipt)
        if receipt.connection is self._connection:
            receipt.connection.acknowledge(receipt)


class _Connection:
    def __init__(self, host: SideHost, options: AmqpOptions, endpoint: Endpoint, pauses: Pauses) -> None:
        self._host = host
        self._options = options
        self._endpoint = endpoint
        self._pauses = pauses
        self._client = AmqpClient(options.client._replace(hostname=endpoint.host))
        self._writer: asyncio.StreamWriter | None = None
        self._will_write = False
        self._loop = asyncio.get_running_loop()

    async def run(self) -> str:
        """Until the connection is lost; why."""
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    self._endpoint.host, self._endpoint.port, ssl=self._options.tls
                )
        except (OSError, TimeoutError) as error:
            return str(error) or "no answer"
        self._writer = writer
        pinging = asyncio.create_task(self._ping())
        try:
            self._write()
            return await self._read(reader)
        except AmqpError as error:
            return error.told
        except (OSError, TimeoutError) as error:
            return str(error) or f"silent for {2 * IDLE_MS // 1000} s"
        finally:
            pinging.cancel()
            self._end(writer)

    async def _read(self, reader: asyncio.StreamReader) -> str:
        while True:
            async with asyncio.timeout(2 * IDLE_MS / 1000):
                data = await reader.read(READ_BYTES)
            if not data:
                return "the broker closed the connection"
            self._handle(self._client.receive(data))
            self._write()
            assert self._writer is not None
            await self._writer.drain()

    def send(self, number: int, message: BridgedMessage) -> None:
        addresses = self._options.addresses
        address = addresses.of(message.topic)
        reply = message.response_topic
        try:
            data = write_content(
                replace(message, response_topic=None if reply is None else addresses.of(reply)), address
            )
        except (AmqpError, ValueError) as error:
            reason = str(error)
            self._loop.call_soon(lambda: self._host.refused(number, reason, is_final=True))
            return
        is_settled = min(message.qos, self._options.qos) == 0
        events = self._client.send(number, address, data, is_settled)
        if events:
            self._loop.call_soon(self._handle, events)
        self._write_soon()

    def acknowledge(self, receipt: AmqpReceipt) -> None:
        if receipt.is_unnamed:
            self._client.reject(receipt.delivery_id, NOT_FOUND, "no rule of the gateway has a name for it")
        else:
            self._client.accept(receipt.delivery_id)
        self._write_soon()

    # Inside

    def _handle(self, events: list[ClientEvent]) -> None:
        for event in events:
            match event:
                case Ready():
                    self._pauses.connected()
                    self._host.up()
                case Delivered():
                    self._arrived(event)
                case Sent(number):
                    self._host.accepted(number)
                case NotSent(number, reason, is_final):
                    self._host.refused(number, reason, is_final=is_final)
                case _:
                    assert_never(event)

    def _arrived(self, event: Delivered) -> None:
        try:
            content = read_content(event.data, 0 if event.delivery_id is None else 1)
        except (AmqpError, ValueError) as error:
            self._host.trouble(f"a message that cannot be read: {error}")
            if event.delivery_id is not None:
                self._client.reject(event.delivery_id, "amqp:decode-error", str(error)[:200])
            return
        name = chosen_name(content.told, self._options.addresses, self._options.filters, event.read_from)
        receipt = None if event.delivery_id is None else AmqpReceipt(self, event.delivery_id, name is None)
        reply = content.message.response_topic
        response = None if reply is None else self._options.addresses.name(reply)
        self._host.arrived(replace(content.message, topic=name or "", response_topic=response), receipt)

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

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._client.close()
        with suppress(OSError, RuntimeError):
            self._write()
            writer.close()
