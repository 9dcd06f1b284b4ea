"""paho-mqtt, the client that most others are held against, made to wait for what it does."""

import queue
import ssl
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from paho.mqtt.client import Client, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PATIENCE_S = 30.0
KEPT_S = 600


@dataclass(frozen=True, slots=True)
class Way:
    """How to get to the broker."""

    port: int
    transport: Literal["tcp", "websockets"] = "tcp"
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    topic: str
    payload: bytes
    qos: int
    retain: bool = False


class Paho:
    """Connected, until it is left. `kept`: its session outlives the connection."""

    def __init__(self, way: Way, client: str, version: MQTTProtocolVersion, *, kept: bool = False) -> None:
        self._way = way
        self._version = version
        self._kept = kept
        clean = None if version == MQTTv5 else not kept
        self.paho = Client(
            CallbackAPIVersion.VERSION2,
            client,
            clean_session=clean,
            protocol=version,
            transport=way.transport,
            reconnect_on_failure=False,
        )
        if way.tls is not None:
            self.paho.tls_set_context(way.tls)
        self.paho.on_connect = self._on_connect
        self.paho.on_subscribe = self._on_subscribe
        self.paho.on_message = self._on_message
        self._connected: queue.Queue[tuple[int, bool]] = queue.Queue()
        self._subscribed: queue.Queue[int] = queue.Queue()
        self._heard: queue.Queue[Heard] = queue.Queue()
        self._is_resumed = False

    def __enter__(self) -> "Paho":
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def connect(self) -> None:
        kept = None
        if self._version == MQTTv5:
            kept = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            kept.SessionExpiryInterval = KEPT_S if self._kept else 0
        first: Any = {"clean_start": not self._kept, "properties": kept} if self._version == MQTTv5 else {}
        self.paho.connect("localhost", self._way.port, **first)
        self.paho.loop_start()
        reason, self._is_resumed = self._connected.get(timeout=PATIENCE_S)
        assert reason == 0, f"refused with {reason:x}"

    def is_resumed(self) -> bool:
        """Whether its session was there already when it connected."""
        return self._is_resumed

    def subscribe(self, topic: str, qos: int) -> int:
        """The reason code."""
        self.paho.subscribe(topic, qos)
        return self._subscribed.get(timeout=PATIENCE_S)

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        self.paho.publish(topic, payload, qos, retain).wait_for_publish(PATIENCE_S)

    def heard(self, count: int = 1) -> list[Heard]:
        return [self._heard.get(timeout=PATIENCE_S) for _ in range(count)]

    def has_heard_all(self) -> bool:
        return self._heard.empty()

    def break_off(self) -> None:
        """As if the network broke."""
        self.paho.loop_stop()
        line = self.paho.socket()
        assert line is not None
        line.close()

    def _on_connect(self, _client: Client, _data: object, flags: Any, reason: Any, _properties: object) -> None:
        self._connected.put((reason.value, bool(flags.session_present)))

    def _on_subscribe(self, _client: Client, _data: object, _id: int, reasons: Any, _properties: object) -> None:
        self._subscribed.put(reasons[0].value)

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        self._heard.put(Heard(message.topic, bytes(message.payload), message.qos, message.retain))


class PersistentPaho:
    """A client whose session is kept and that comes back by itself, as paho does, as soon as `may_return` is set.

    It must not try in vain: with the second try paho forgets that it has released a message of QoS 2, and publishes it
    once more (`_messages_reconnect_reset_out` makes `mqtt_ms_publish` of `mqtt_ms_resend_pubrel`).
    """

    def __init__(self, port: int, client: str, version: MQTTProtocolVersion, topic: str, qos: int) -> None:
        clean = None if version == MQTTv5 else False
        self.paho = Client(CallbackAPIVersion.VERSION2, client, clean_session=clean, protocol=version)
        self.paho.reconnect_delay_set(1, 1)
        self.paho.on_connect = self._on_connect
        self.paho.on_subscribe = self._on_subscribe
        self.paho.on_message = self._on_message
        self.paho.on_publish = self._on_publish
        self.paho.on_disconnect = self._on_disconnect
        self.may_return = threading.Event()
        self.may_return.set()
        self.topic = topic
        self.qos = qos
        self.is_subscriber = False
        self.is_ready = threading.Event()
        self.connections = 0
        self.sessions_lost = 0
        self.published = 0
        self.heard: list[int] = []
        self._pending: deque[int] = deque()
        self._answered: set[int] = set()
        kept: Any = {}
        if version == MQTTv5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = KEPT_S
            kept = {"clean_start": False, "properties": properties}
        self.paho.connect_async("127.0.0.1", port, **kept)

    def __enter__(self) -> "PersistentPaho":
        self.paho.loop_start()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_return.set()
        self.paho.disconnect()
        self.paho.loop_stop()

    def publish(self) -> None:
        # Without a connection it says so, and sends it all the same when there is one.
        self._pending.append(self.paho.publish(self.topic, b"%d" % self.published, self.qos).mid)
        self.published += 1

    @property
    def acknowledged(self) -> int:
        """How many of the first are acknowledged, without a gap."""
        while self._pending and self._pending[0] in self._answered:
            self._answered.remove(self._pending.popleft())
        return self.published - len(self._pending)

    def _on_connect(self, client: Client, _data: object, flags: Any, reason: Any, _properties: object) -> None:
        assert reason.value == 0, reason
        self.sessions_lost += self.connections > 0 and not flags.session_present
        self.connections += 1
        if self.is_subscriber and not self.is_ready.is_set():
            client.subscribe(self.topic, self.qos)
        else:
            self.is_ready.set()

    def _on_disconnect(self, *_: object) -> None:
        self.may_return.wait()

    def _on_publish(self, _client: Client, _data: object, number: int, _reason: object, _properties: object) -> None:
        self._answered.add(number)

    def _on_subscribe(self, *_: object) -> None:
        self.is_ready.set()

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        self.heard.append(int(message.payload))


VERSIONS = {"3.1.1": MQTTv311, "5": MQTTv5}
