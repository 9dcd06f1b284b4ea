"""Tokens and a service decide who clients of a running broker are: MQTT by Paho, NATS by nats-py, HTTP."""

import asyncio
import http.client
import json
import queue
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from login_tokens import Issuer, service_running, write_keys
from nats.errors import Error as NatsError
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from brokers import Overlane, free_port, running
from waiting import eventually

ISSUER = Issuer()
PATIENCE_S = 30.0
ACCEPTED, ERRORS, BAD_LOGIN, NOT_AUTHORIZED = 0, 128, 134, 135

TABLES = """
[security]
anonymous = false
[security.jwt]
keys = "keys.json"
issuer = "https://id.example.com"
leeway = "0s"
[security.hook]
url = "{url}"
remember = "0s"
[[access]]
user = "alice"
publish = ["alice/#"]
[[access]]
user = "*"
subscribe = ["news"]
"""


class Place:
    def __init__(self, directory: Path, url: str) -> None:
        self.nats, self.http = free_port(), free_port()
        self.keys = write_keys(directory / "keys.json", ISSUER)
        addresses = f'nats = "127.0.0.1:{self.nats}"\nhttp = "127.0.0.1:{self.http}"\n'
        self.broker = Overlane(directory, TABLES.format(url=url), addresses)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with service_running() as (service, url):
        service.answers = [(403, b"")]
        found = Place(tmp_path_factory.mktemp("logins"), url)
        found.service = service  # type: ignore[attr-defined]
        for _ in running(found.broker):
            yield found


def token(user: str = "alice", **claims: Any) -> str:
    return ISSUER.token(user, iss="https://id.example.com", **claims).decode()


class Paho:
    def __init__(
        self,
        port: int,
        user: str | None,
        password: str | None,
        version: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv5,
    ) -> None:
        self.connected: queue.Queue[int] = queue.Queue()
        self.parted: queue.Queue[int] = queue.Queue()
        self.answers: queue.Queue[int] = queue.Queue()
        self.client = Client(CallbackAPIVersion.VERSION2, "pump-7", protocol=version, reconnect_on_failure=False)
        self.client.on_connect = lambda _, __, ___, reason, ____: self.connected.put(reason.value)
        self.client.on_disconnect = lambda _, __, ___, reason, ____: self.parted.put(reason.value)
        self.client.on_publish = lambda _, __, ___, reason, ____: self.answers.put(reason.value)
        if user is not None:
            self.client.username_pw_set(user, password)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.reason = self.connected.get(timeout=PATIENCE_S)

    def publish(self, topic: str) -> int:
        self.client.publish(topic, b"x", 1)
        return self.answers.get(timeout=PATIENCE_S)

    def leave(self) -> int:
        self.client.disconnect()
        self.client.loop_stop()
        return self.reason


def test_a_token_gives_a_client_of_mqtt_the_rights_of_its_user(place: Place) -> None:
    for version in (MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311):
        alice = Paho(place.broker.port, "alice", token("alice"), version)
        assert alice.reason == ACCEPTED
        assert alice.publish("alice/level") < ERRORS
        if version is MQTTProtocolVersion.MQTTv5:
            assert alice.publish("bob/level") == NOT_AUTHORIZED
        alice.leave()
    assert Paho(place.broker.port, "bob", token("alice")).leave() == BAD_LOGIN
    assert Paho(place.broker.port, "alice", token("alice", for_s=-1)).leave() == BAD_LOGIN
    assert Paho(place.broker.port, "alice", Issuer().token("alice").decode()).leave() == BAD_LOGIN


def test_a_client_is_disconnected_when_its_token_ends(place: Place) -> None:
    alice = Paho(place.broker.port, "alice", token("alice", for_s=3))
    if alice.reason == ACCEPTED:  # or it took so long to get there
        assert alice.parted.get(timeout=PATIENCE_S) == NOT_AUTHORIZED
    alice.leave()


def test_the_service_is_asked_about_other_users(place: Place) -> None:
    service: Any = place.service  # type: ignore[attr-defined]
    service.asked.clear()
    assert Paho(place.broker.port, "carol", "sesame").leave() == BAD_LOGIN
    service.answers = [(200, b'{"result": "allow"}')]
    assert Paho(place.broker.port, "carol", "sesame").leave() == ACCEPTED
    service.answers = [(403, b"")]
    assert [(one["user"], one["client_id"], one["listener"]) for one in service.asked] == [
        ("carol", "pump-7", "mqtt")
    ] * 2


def test_a_client_of_nats_shows_its_token(place: Place) -> None:
    async def story() -> None:
        client = await nats.connect(f"nats://127.0.0.1:{place.nats}", token=token("alice"), allow_reconnect=False)
        await client.publish("alice.level", b"x")
        await client.flush()
        await client.close()
        with pytest.raises(NatsError):
            await nats.connect(f"nats://127.0.0.1:{place.nats}", token=token("alice", for_s=-1), allow_reconnect=False)

    asyncio.run(story())


def test_a_request_of_http_carries_its_token(place: Place) -> None:
    def put(topic: str, bearer: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", place.http, timeout=PATIENCE_S)
        connection.request("POST", f"/topics/{topic}", b"x", {"authorization": f"Bearer {bearer}"})
        return connection.getresponse().status

    assert put("alice/level", token("alice")) in (200, 202, 204)
    assert put("bob/level", token("alice")) == 403
    assert put("alice/level", token("alice", for_s=-1)) == 401


def test_keys_are_read_again_and_a_wrong_file_changes_nothing(place: Place) -> None:
    later = Issuer("second")

    def answer(issuer: Issuer) -> int:
        said = issuer.token("alice", iss="https://id.example.com").decode()
        return Paho(place.broker.port, "alice", said).leave()

    assert answer(later) == BAD_LOGIN
    place.keys.write_text("{}")
    place.broker._signal(signal.SIGHUP)
    eventually(lambda: "configuration unchanged" in (place.broker.directory / "log.txt").read_text())
    assert answer(ISSUER) == ACCEPTED
    place.keys.write_text(json.dumps({"keys": [later.public()]}))
    place.broker._signal(signal.SIGHUP)
    eventually(lambda: answer(later) == ACCEPTED)
    assert answer(ISSUER) == BAD_LOGIN
