"""The carrier as a bus: messages to one topic, and those of another, by MQTT 5 or AMQP 1.0."""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from overlane.amqp.client.contract import ClientEvent, ClientOptions, Delivered, Ready, Receiver
from overlane.amqp.codec import composites, encoding
from overlane.amqp.codec.malformed import AmqpError
from overlane.amqp.messages import sections
from overlane.amqp.messages.reading import read_message
from overlane.amqp.messages.sections import MessageProperties
from overlane.amqp_connection import AmqpConnection
from overlane.client import Client, ClientError, connect
from overlane.membership.carrier import Carrier

Arrived: TypeAlias = Callable[[bytes], Awaitable[None]]

AMQP_PORTS = {"amqp": 5672, "amqps": 5671}
UNSENT_MAX = 1_000
"""Messages that the carrier has not accepted, by AMQP. All connections of a link together have fewer, mostly."""


class CarrierBus(ABC):
    """One connection to the carrier."""

    @abstractmethod
    async def run(self, topic: str, arrived: Arrived) -> str:
        """Until the connection is lost; why. `arrived` gets the messages of the topic."""

    @abstractmethod
    async def publish(self, topic: str, message: bytes) -> bool:
        """False if the carrier is not connected."""


def make_bus(carrier: Carrier, name: str) -> CarrierBus:
    return AmqpBus(carrier, name) if carrier.is_amqp else MqttBus(carrier, name)


class MqttBus(CarrierBus):
    def __init__(self, carrier: Carrier, name: str) -> None:
        self._carrier = carrier
        self._name = name
        self._client: Client | None = None

    async def run(self, topic: str, arrived: Arrived) -> str:
        try:
            async with (
                connect(self._carrier.address, client_id=self._name, keep_alive="10s") as client,
                client.subscribe(topic, qos=1) as messages,
            ):
                self._client = client
                async for message in messages:
                    await arrived(message.body)
        except ClientError as error:
            return str(error)
        finally:
            self._client = None
        return "the connection has ended"

    async def publish(self, topic: str, message: bytes) -> bool:
        if self._client is None:
            return False
        try:
            await self._client.start_publish(topic, message, qos=1)
        except ClientError:
            return False
        return True


class AmqpBus(CarrierBus):
    """Deliveries are accepted when they are handed on. A frame that is missing is noticed by the other end."""

    def __init__(self, carrier: Carrier, name: str) -> None:
        self._name = name
        scheme, _, place = carrier.address.partition("://")
        host, _, port = place.rpartition(":") if place.rpartition(":")[2].isdigit() else (place, "", "")
        self._host = host.strip("[]")
        self._port = int(port) if port else AMQP_PORTS[scheme]
        self._tls = ssl.create_default_context() if scheme == "amqps" else None
        self._connection: AmqpConnection | None = None
        self._is_ready = False
        self._numbers = 0
        self._unsent: set[int] = set()
        self._inbox: asyncio.Queue[tuple[int | None, bytes]] = asyncio.Queue()

    async def run(self, topic: str, arrived: Arrived) -> str:
        options = ClientOptions(self._name, self._host, (Receiver(topic, topic),), is_durable=False)
        self._connection = connection = AmqpConnection(options, self._host, self._port, self._tls, self._happened)
        handing = asyncio.create_task(self._hand_on(arrived))
        try:
            return await connection.run()
        finally:
            self._is_ready = False
            handing.cancel()

    async def publish(self, topic: str, message: bytes) -> bool:
        if not self._is_ready or self._connection is None or len(self._unsent) >= UNSENT_MAX:
            return False
        self._numbers += 1
        self._unsent.add(self._numbers)
        data = encoding.described(sections.DATA, encoding.binary(message))
        self._connection.send(self._numbers, topic, composites.write(MessageProperties(to=topic)) + data, False)
        return True

    def _happened(self, event: ClientEvent) -> None:
        match event:
            case Ready():
                self._is_ready = True
            case Delivered(data, _, delivery_id):
                self._inbox.put_nowait((delivery_id, data))  # no more than the credit of the receiver
            case _:  # one that the carrier refuses is missed at the other end, which ends the connection
                self._unsent.discard(event.number)

    async def _hand_on(self, arrived: Arrived) -> None:
        while True:
            delivery_id, data = await self._inbox.get()
            with suppress(AmqpError):  # not from a broker of ours
                await arrived(read_message(data, 0).payload)
            if delivery_id is not None and self._connection is not None:
                self._connection.accept(delivery_id)
