"""A side with MQTT 5: the broker of the overlay, and foreign brokers that speak it.

The session at the broker lasts, so what is published while the gateway is away waits there. A message is acknowledged
when the other side has it. Publications that are under way when the connection is lost are sent again by the client.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from overlane.client import (
    Client,
    ClientError,
    Expired,
    InvalidRequest,
    Message,
    PublishRefused,
    Subscription,
    Tls,
    Will,
    connect,
)
from overlane.gateways.message import BridgedMessage
from overlane.gateways.sides.side import Pauses, Side, SideHost

SESSION_EXPIRY = "30d"
KEEP_ALIVE = "10s"
WINDOW = 500
LOOK_EVERY_S = 0.5
TEMPORARY_CODES = frozenset({0x80, 0x83, 0x97})
"""Unspecified, implementation specific, quota exceeded: may be gone the next time."""


@dataclass(frozen=True, slots=True)
class Mqtt5Options:
    addresses: tuple[str, ...]
    client_id: str
    filters: tuple[str, ...]
    group: str | None
    """The shared subscription of several gateways."""
    qos: int
    user: str | None = None
    password: bytes | None = None
    tls: Tls | None = None
    will: Will | None = None


class Mqtt5Receipt(NamedTuple):
    subscription: Subscription
    message: Message


class Mqtt5Side(Side):
    def __init__(self, host: SideHost, options: Mqtt5Options) -> None:
        super().__init__(host)
        self._options = options
        self._client: Client | None = None
        self._outbox: asyncio.Queue[tuple[int, BridgedMessage]] = asyncio.Queue()
        self._answers: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        pauses = Pauses()
        while True:
            client = self._connect()
            try:
                async with client, asyncio.TaskGroup() as tasks:
                    self._client = client
                    pauses.connected()
                    self._outbox = asyncio.Queue()
                    subscriptions = self._subscriptions(client)
                    tasks.create_task(self._watch(client, subscriptions[0]))
                    tasks.create_task(self._send_all(client, self._outbox))
                    for subscription in subscriptions:
                        tasks.create_task(self._read(subscription))
            except* ClientError as errors:
                self._lost(client.last_error or str(_first(errors)))
            except* OSError as errors:
                self._lost(str(_first(errors)))
            await pauses.wait()

    def send(self, number: int, message: BridgedMessage) -> None:
        self._outbox.put_nowait((number, message))

    def acknowledge(self, receipt: object) -> None:
        assert isinstance(receipt, Mqtt5Receipt)
        receipt.subscription.done(receipt.message)

    async def publish(self, topic: str, body: bytes) -> None:
        """A retained message of the gateway's own; not while there is no connection."""
        if self._client is not None and self._client.connected:
            await self._client.publish(topic, body, qos=1, retain=True)

    # Inside

    def _connect(self) -> Client:
        options = self._options
        return connect(
            *options.addresses,
            client_id=options.client_id,
            user=options.user,
            password=options.password,
            tls=options.tls,
            session_expiry=SESSION_EXPIRY,
            keep_alive=KEEP_ALIVE,
            will=options.will,
            in_flight_max=WINDOW,
        )

    def _subscriptions(self, client: Client) -> Sequence[Subscription]:
        """What rules of an earlier run have subscribed to is unclaimed: it comes too, and is acknowledged."""
        options = self._options
        if not options.filters:
            return [client.unclaimed()]
        prefix = "" if options.group is None else f"$share/{options.group}/"
        wanted = client.subscribe(
            *(prefix + one for one in options.filters),
            qos=options.qos,
            no_local=options.group is None,
            retained="new",
            retain_as_published=True,
        )
        return [wanted, client.unclaimed()]

    async def _watch(self, client: Client, wanted: Subscription) -> None:
        """The side is connected when the broker has agreed to the subscription: nothing is missed from then on."""
        await wanted.ready()
        while True:
            self.host.up()
            await client.wait_disconnected()
            told = ""
            while not client.connected:
                if client.last_error != told or not told:
                    told = client.last_error or "the connection is lost"
                    self.host.down(told)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await client.wait_connected()

    async def _read(self, subscription: Subscription) -> None:
        async for batch in subscription.batches(acknowledge=False):
            for message in batch:
                receipt = None if message.receipt is None else Mqtt5Receipt(subscription, message)
                self.host.arrived(_bridged(message), receipt)
            await asyncio.sleep(0)

    async def _send_all(self, client: Client, outbox: "asyncio.Queue[tuple[int, BridgedMessage]]") -> None:
        while True:
            number, message = await outbox.get()
            try:
                answer = await client.start_publish(
                    message.topic,
                    message.body,
                    qos=min(message.qos, self._options.qos),
                    retain=message.retain,
                    expiry=None if message.expiry_s is None else f"{message.expiry_s}s",
                    properties=message.properties,
                    content_type=message.content_type,
                    response_topic=message.response_topic,
                    correlation_data=message.correlation_data,
                )
            except InvalidRequest as error:
                self.host.refused(number, str(error), is_final=True)
                continue
            self._answers.add(answer)
            answer.add_done_callback(partial(self._answered, number))

    def _answered(self, number: int, answer: "asyncio.Future[None]") -> None:
        self._answers.discard(answer)
        if answer.cancelled():
            return
        match answer.exception():
            case None:
                self.host.accepted(number)
            case PublishRefused(code=code) as error:
                self.host.refused(number, str(error), is_final=code not in TEMPORARY_CODES)
            case Expired() | InvalidRequest() as error:
                self.host.refused(number, str(error), is_final=True)
            case _:
                pass  # the client has ended: `down` says that everything under way is forgotten

    def _lost(self, reason: str) -> None:
        self._client = None
        self.host.down(reason, forgot_sent=True, forgot_receipts=True)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _bridged(message: Message) -> BridgedMessage:
    return BridgedMessage(
        topic=message.topic,
        body=message.body,
        qos=int(message.qos),
        retain=message.retained,
        expiry_s=message.expiry_s,
        content_type=message.content_type,
        response_topic=message.response_topic,
        correlation_data=message.correlation_data,
        properties=tuple(message.property_pairs),
    )
