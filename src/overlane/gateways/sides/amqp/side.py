"""A side with an AMQP 1.0 broker. What comes in waits at the broker: in a queue, or in a durable subscription.

A message that comes in is accepted when the overlay has it; one that no rule has a name for is rejected, so that the
broker can put it aside. A message that goes out counts as accepted when the broker has accepted it.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from overlane.amqp.client.contract import ClientEvent, ClientOptions, Delivered, NotSent, Ready, Sent
from overlane.amqp.codec.malformed import DECODE_ERROR, NOT_FOUND, AmqpError
from overlane.amqp_connection import AmqpConnection
from overlane.gateways.message import BridgedMessage
from overlane.gateways.sides.amqp.addresses import Addresses, chosen_name
from overlane.gateways.sides.amqp.content import read_content, write_content
from overlane.gateways.sides.side import Pauses, Side, SideHost
from overlane.network.schema import Endpoint


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
        self._pauses = pauses
        self._loop = asyncio.get_running_loop()
        self._amqp = AmqpConnection(options.client, endpoint.host, endpoint.port, options.tls, self._handle)

    async def run(self) -> str:
        """Until the connection is lost; why."""
        return await self._amqp.run()

    def send(self, number: int, message: BridgedMessage) -> None:
        addresses = self._options.addresses
        address = addresses.of(message.topic)
        reply = message.response_topic
        try:
            data = write_content(message, address, None if reply is None else addresses.of(reply))
        except (AmqpError, ValueError) as error:
            reason = str(error)
            self._loop.call_soon(lambda: self._host.refused(number, reason, is_final=True))
            return
        self._amqp.send(number, address, data, min(message.qos, self._options.qos) == 0)

    def acknowledge(self, receipt: AmqpReceipt) -> None:
        if receipt.is_unnamed:
            self._amqp.reject(receipt.delivery_id, NOT_FOUND, "no rule of the gateway has a name for it")
        else:
            self._amqp.accept(receipt.delivery_id)

    def _handle(self, event: ClientEvent) -> None:
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
            content = read_content(event.data)
        except (AmqpError, ValueError) as error:
            self._host.trouble(f"a message that cannot be read: {error}")
            if event.delivery_id is not None:
                self._amqp.reject(event.delivery_id, DECODE_ERROR, str(error)[:200])
            return
        name = chosen_name(content.told, self._options.addresses, self._options.filters, event.read_from)
        receipt = None if event.delivery_id is None else AmqpReceipt(self, event.delivery_id, name is None)
        reply = content.values.response_topic
        response = None if reply is None else self._options.addresses.name(reply)
        self._host.arrived(content.message(name or "", response, 0 if receipt is None else 1), receipt)
