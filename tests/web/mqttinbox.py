"""MQTT clients for tests of the web side: paho, which is not ours."""

import threading
from types import TracebackType
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

TIMEOUT_S = 60.0


class MqttInbox:
    """Subscribes, and keeps what it gets."""

    def __init__(
        self, port: int, topic_filter: str, qos: int = 0, client_id: str = "", *, expiry_s: int = 0, where: str = ""
    ) -> None:
        self.messages: list[Any] = []
        self._topic_filter = topic_filter
        self._qos = qos
        self._where = where
        self._granted = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5)
        self._client.on_message = lambda _client, _data, message: self.messages.append(message)
        self._client.on_connect = self._connected
        self._client.on_subscribe = lambda *_: self._granted.set()
        wishes = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        wishes.SessionExpiryInterval = expiry_s
        self._client.connect("127.0.0.1", port, clean_start=not expiry_s, properties=wishes)
        self._client.loop_start()
        assert self._granted.wait(TIMEOUT_S)

    def _connected(self, *_: object) -> None:
        wishes = None
        if self._where:
            wishes = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
            wishes.UserProperty = [("overlane-where", self._where)]
        options = SubscribeOptions(qos=self._qos)
        self._client.subscribe(self._topic_filter, options=options, properties=wishes)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> "MqttInbox":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def publish(port: int, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False, count: int = 1) -> None:
    """And wait until the broker has all of them."""
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for one in [client.publish(topic, payload, qos, retain) for _ in range(count)]:
        one.wait_for_publish(TIMEOUT_S)
    client.disconnect()
    client.loop_stop()
