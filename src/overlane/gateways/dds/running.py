"""A DDS gateway that runs: a domain on one side, a broker of the overlay on the other."""

import asyncio
import logging
import time
from contextlib import suppress

import overlane.client as client
from overlane.client import Client, ClientError, Message, Will
from overlane.errors import Unavailable
from overlane.extras import is_installed, missing_extra
from overlane.gateways.dds.routes import JSON, Changes, Endpoint, Routes
from overlane.gateways.dds.samples import (
    CONTENT_TYPE,
    GATEWAY,
    Sample,
    SampleKind,
    announce_topic,
    expiry_s,
    is_reliable,
    json_topic,
    last_level,
    properties_of,
    sample_of,
    sample_topic,
)
from overlane.network.schema import DdsGateway

SAMPLES_WAITING_MAX = 10_000

log = logging.getLogger("overlane.gateway")


class RunningDdsGateway:
    """`address`: of the broker. Unavailable if the extra is missing."""

    def __init__(self, gateway: DdsGateway, address: str) -> None:
        if not is_installed("cyclonedds"):
            raise Unavailable("DDS", missing_extra("cyclonedds", "dds"))
        self._gateway = gateway
        self._address = address
        self._is_json = gateway.format == JSON
        self._routes = Routes(gateway.topics, is_json=self._is_json)
        self._qos: dict[str, dict[str, object]] = {}
        """Of writers here, by topic."""
        self._outgoing: asyncio.Queue[tuple[str, Sample]] = asyncio.Queue(SAMPLES_WAITING_MAX)
        self._announcement = asyncio.Event()
        self.dropped = 0

    async def run(self, ended: asyncio.Event) -> None:
        # Only where it is needed: it loads a library in C.
        from overlane.gateways.dds.domain import DdsDomain

        gateway = self._gateway
        own = announce_topic(gateway.prefix, gateway.name)
        will = Will(own, b"", qos=1, retain=True)
        domain = DdsDomain(gateway.domain, asyncio.get_running_loop(), self)  # type: ignore[arg-type]
        self._domain = domain
        async with client.connect(self._address, client_id=f"overlane-dds-{gateway.name}", will=will) as broker:
            domain.start()
            works = self._send(broker), self._announce(broker, own), self._receive(broker)
            tasks = [asyncio.create_task(work) for work in works]
            waiting = asyncio.create_task(ended.wait())
            try:
                await asyncio.wait((*tasks, waiting), return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
                with suppress(ClientError, TimeoutError):
                    async with asyncio.timeout(2):
                        await broker.publish(own, b"", qos=1, retain=True)
            finally:
                for one in (*tasks, waiting):
                    one.cancel()
                await asyncio.gather(*tasks, waiting, return_exceptions=True)
                domain.close()

    # From the domain

    def found(self, key: str, endpoint: Endpoint) -> None:
        if endpoint.is_writer:
            self._qos[endpoint.topic] = dict(endpoint.qos)
        self._carry_out(self._routes.found(key, endpoint))

    def lost(self, key: str) -> None:
        self._carry_out(self._routes.lost(key))

    def samples(self, topic: str, samples: list[Sample]) -> None:
        for sample in samples:
            try:
                self._outgoing.put_nowait((topic, sample))
            except asyncio.QueueFull:
                self.dropped += 1

    def _carry_out(self, changes: Changes) -> None:
        domain = self._domain
        for topic in changes.close_readers:
            log.info("DDS: no longer forwarding %s", topic)
            domain.close_reader(topic)
        for route in changes.close_writers:
            log.info("DDS: no longer receiving %s of %s", route[1], route[0])
            domain.close_writer(route)
        for topic, told in changes.types:
            domain.learn_type(topic, told)
        for topic in changes.open_readers:
            log.info("DDS: forwarding %s", topic)
            domain.open_reader(topic)
        for route, qos in changes.open_writers:
            log.info("DDS: receiving %s from %s", route[1], route[0])
            domain.open_writer(route, qos)
        if changes.announcement is not None:
            self._announcement.set()

    # To the broker

    async def _announce(self, broker: Client, own: str) -> None:
        while True:
            await self._announcement.wait()
            self._announcement.clear()
            if not self._is_json:
                await broker.publish(own, self._routes.announcement, qos=1, retain=True)

    async def _send(self, broker: Client) -> None:
        prefix, name = self._gateway.prefix, self._gateway.name
        while True:
            topic, sample = await self._outgoing.get()
            qos = self._qos.get(topic, {})
            expiry = expiry_s(qos)
            level, until = int(is_reliable(qos)), None if expiry is None else f"{expiry}s"
            if not self._is_json:
                to, pairs = sample_topic(prefix, name, topic), properties_of(sample, name)
                await broker.publish(
                    to, sample.data, qos=level, properties=pairs, content_type=CONTENT_TYPE, expiry=until
                )
            elif sample.kind is SampleKind.WRITE:
                try:
                    body = self._domain.as_json(topic, sample)
                except ValueError as wrong:
                    log.warning("DDS: %s", wrong)
                    continue
                pairs = properties_of(sample, name)
                to = json_topic(prefix, topic)
                await broker.publish(to, body, qos=level, properties=pairs, content_type="application/json")

    # From the broker

    async def _receive(self, broker: Client) -> None:
        prefix = self._gateway.prefix
        filters = (f"{prefix}/+",) if self._is_json else (f"{prefix}/announce/+", f"{prefix}/samples/+/+")
        async with broker.subscribe(*filters, qos=1) as messages:
            async for message in messages:
                try:
                    self._received(message)
                except ValueError as wrong:
                    log.warning("DDS: %s: %s", message.topic, wrong)

    def _received(self, message: Message) -> None:
        name, levels = self._gateway.name, message.topic.split("/")
        if self._is_json:
            if message.properties.get(GATEWAY) is None and message.body:
                self._domain.write_json((JSON, last_level(message.topic)), message.body, time.time_ns())
        elif levels[-2] == "announce":
            if levels[-1] != name:
                self._carry_out(self._routes.announced(levels[-1], message.body))
        elif levels[-2] != name:
            sample = sample_of(message.body, message.properties)
            self._domain.write((levels[-2], last_level(message.topic)), sample)
