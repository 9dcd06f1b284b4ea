"""Clients that others have written, of every protocol, behind one small interface: Paho, Qpid Proton, nats-py, HTTP.

A reader gives what its client was told of a message (`Seen`); what the protocol cannot say is None.
"""

import asyncio
import base64
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import nats
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from proton_clients import proton
from webclients import EventReader, ask

from waiting import eventually

proton_core: Any = proton()
proton_utils: Any = proton("proton.utils")

WITHIN_S = 60.0
PROBE = b"is this needed?"
T = TypeVar("T")


@dataclass(frozen=True)
class Seen:
    topic: str
    payload: bytes
    qos: int | None = None
    retained: bool | None = None
    expiry_s: int | None = None
    content_type: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sent:
    topic: str
    payload: bytes
    retain: bool = False


EXPIRY_S = 600
CONTENT_TYPE = "application/x-test"
PROPERTIES = {"site": "rome", "unit": "°C"}


class Reader(ABC):
    """A client that has subscribed."""

    def __init__(self) -> None:
        self._seen: queue.Queue[Seen] = queue.Queue()

    def take(self, count: int) -> list[Seen]:
        found: list[Seen] = []
        while len(found) < count:
            one = self._next()
            if one.payload != PROBE:
                found.append(one)
        return found

    def _next(self) -> Seen:
        return self._seen.get(timeout=WITHIN_S)

    @abstractmethod
    def close(self) -> None: ...


class Protocol(ABC):
    """One protocol at a broker; `address` is that of its listener."""

    name: str
    can_retain = True

    @abstractmethod
    def read(self, address: str, topic_filter: str) -> Reader: ...

    @abstractmethod
    def publish(self, address: str, messages: list[Sent]) -> None:
        """All with properties, content type and expiry, as far as the protocol has them, at its best QoS up to 1; and
        wait until the broker has them."""


# MQTT


class _MqttReader(Reader):
    def __init__(self, address: str, topic_filter: str, version: int) -> None:
        super().__init__()
        granted = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, protocol=version)  # type: ignore[arg-type]
        self._client.on_message = lambda _client, _data, message: self._seen.put(_of_mqtt(message))
        self._client.on_subscribe = lambda *_: granted.set()
        host, _, port = address.rpartition(":")
        self._client.connect(host, int(port))
        self._client.loop_start()
        eventually(self._client.is_connected, "connected", WITHIN_S)
        self._client.subscribe(topic_filter, 1)
        assert granted.wait(WITHIN_S)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def _of_mqtt(message: Any) -> Seen:
    values = message.properties
    return Seen(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        getattr(values, "MessageExpiryInterval", None),
        getattr(values, "ContentType", None),
        dict(getattr(values, "UserProperty", ())),
    )


class Mqtt(Protocol):
    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self._version = version

    def read(self, address: str, topic_filter: str) -> Reader:
        return _MqttReader(address, topic_filter, self._version)

    def publish(self, address: str, messages: list[Sent]) -> None:
        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=self._version)  # type: ignore[arg-type]
        host, _, port = address.rpartition(":")
        client.connect(host, int(port))
        client.loop_start()
        values = None
        if self._version == paho.MQTTv5:
            values = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            values.MessageExpiryInterval, values.ContentType = EXPIRY_S, CONTENT_TYPE
            values.UserProperty = list(PROPERTIES.items())
        for one in [client.publish(sent.topic, sent.payload, 1, sent.retain, values) for sent in messages]:
            one.wait_for_publish(WITHIN_S)
        client.disconnect()
        client.loop_stop()


def is_needed(address: str, topic: str) -> bool:
    """Whether the broker knows of somebody who needs the topic: MQTT 5 says so of a message that nobody does."""
    reasons: queue.Queue[int] = queue.Queue()
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.on_publish = lambda _client, _data, _id, reason, _values: reasons.put(reason.value)
    host, _, port = address.rpartition(":")
    client.connect(host, int(port))
    client.loop_start()
    client.publish(topic, PROBE, 1)
    try:
        return reasons.get(timeout=WITHIN_S) == 0
    finally:
        client.disconnect()
        client.loop_stop()


# AMQP


class _AmqpReader(Reader):
    def __init__(self, address: str, topic_filter: str) -> None:
        super().__init__()
        self._connection = proton_utils.BlockingConnection(f"amqp://{address}", timeout=WITHIN_S)
        self._receiver = self._connection.create_receiver(topic_filter, credit=100)

    def _next(self) -> Seen:
        message = self._receiver.receive(WITHIN_S)
        is_settled = not self._receiver.fetcher.unsettled
        if not is_settled:
            self._receiver.accept()
        annotations = {str(name): value for name, value in (message.annotations or {}).items()}
        body = message.body
        return Seen(
            annotations.get("x-opt-topic", ""),
            body.encode() if isinstance(body, str) else bytes(body),
            0 if is_settled else 1,
            bool(annotations.get("x-opt-retain", False)),
            round(message.ttl) or None,
            message.content_type or None,
            {str(name): str(value) for name, value in (message.properties or {}).items()},
        )

    def close(self) -> None:
        self._connection.close()


class Amqp(Protocol):
    name = "AMQP 1.0"

    def read(self, address: str, topic_filter: str) -> Reader:
        return _AmqpReader(address, topic_filter)

    def publish(self, address: str, messages: list[Sent]) -> None:
        connection = proton_utils.BlockingConnection(f"amqp://{address}", timeout=WITHIN_S)
        sender = connection.create_sender(None)
        for sent in messages:
            message = proton_core.Message(
                body=sent.payload,
                inferred=True,
                address=sent.topic,
                ttl=EXPIRY_S,
                content_type=CONTENT_TYPE,
                properties=dict(PROPERTIES),
            )
            if sent.retain:
                message.annotations = {proton_core.symbol("x-opt-retain"): True}
            sender.send(message)
        connection.close()


# NATS


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _NatsReader(Reader):
    def __init__(self, address: str, topic_filter: str) -> None:
        super().__init__()
        self._loop = _Loop()
        self._client = self._loop.run(nats.connect(f"nats://{address}", connect_timeout=WITHIN_S))
        subject = topic_filter.replace("/", ".").replace("+", "*").replace("#", ">")
        self._loop.run(self._client.subscribe(subject, cb=self._got))
        self._loop.run(self._client.flush(int(WITHIN_S)))

    async def _got(self, message: Any) -> None:
        headers = dict(message.headers or {})
        expiry = headers.pop("Nats-TTL", None)
        content_type = headers.pop("Content-Type", None)
        topic = message.subject.replace(".", "/")
        self._seen.put(Seen(topic, message.data, None, None, expiry and int(expiry), content_type, headers))

    def close(self) -> None:
        self._loop.run(self._client.close())
        self._loop.close()


class Nats(Protocol):
    name = "NATS"
    can_retain = False

    def read(self, address: str, topic_filter: str) -> Reader:
        return _NatsReader(address, topic_filter)

    def publish(self, address: str, messages: list[Sent]) -> None:
        loop = _Loop()
        try:
            loop.run(self._publish(address, messages))
        finally:
            loop.close()

    async def _publish(self, address: str, messages: list[Sent]) -> None:
        client = await nats.connect(f"nats://{address}", connect_timeout=WITHIN_S, verbose=True)
        headers = {"Nats-TTL": str(EXPIRY_S), "Content-Type": CONTENT_TYPE, **PROPERTIES}
        for sent in messages:
            await client.publish(sent.topic.replace("/", "."), sent.payload, headers=headers)
        await client.flush(int(WITHIN_S))
        await client.close()


# HTTP


class _EventsReader(Reader):
    def __init__(self, address: str, topic_filter: str) -> None:
        super().__init__()
        self._events = EventReader(address, f"/events?topic={quote(topic_filter, safe='/')}")
        assert self._events.answer.status == 200
        self._taken = 0

    def _next(self) -> Seen:
        event = eventually(self._more, "an event", WITHIN_S)
        self._taken += 1
        data = event.data
        payload = base64.b64decode(data["payload_base64"]) if "payload_base64" in data else data["payload"].encode()
        properties = data.get("properties", {})
        pairs = properties if isinstance(properties, Mapping) else dict(properties)
        return Seen(data["topic"], payload, data.get("qos"), data.get("retain"), None, data.get("content_type"), pairs)

    def _more(self) -> Any:
        return self._events.events[self._taken] if len(self._events.events) > self._taken else None

    def close(self) -> None:
        self._events.close()


class Http(Protocol):
    name = "HTTP"

    def read(self, address: str, topic_filter: str) -> Reader:
        return _EventsReader(address, topic_filter)

    def publish(self, address: str, messages: list[Sent]) -> None:
        for sent in messages:
            headers = [("Content-Type", CONTENT_TYPE), ("Overlane-Expiry", str(EXPIRY_S))]
            headers += [("Overlane-Property", f"{name}={quote(value)}") for name, value in PROPERTIES.items()]
            headers += [("Overlane-Retain", "true")] if sent.retain else []
            assert ask(address, "POST", f"/topics/{sent.topic}", sent.payload, headers).status == 204


PROTOCOLS: tuple[Protocol, ...] = (
    Mqtt("MQTT 3.1.1", paho.MQTTv311),
    Mqtt("MQTT 5", paho.MQTTv5),
    Amqp(),
    Nats(),
    Http(),
)
