"""The HTTP listener of a running broker: publishing, retained messages, events, users and origins."""

import base64
import json
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqttinbox import MqttInbox, publish
from webclients import WebBroker, ask, reading

from waiting import eventually

USERS = """
[security]
users = "{users}"
anonymous = false

[[access]]
user = "ann"
publish = ["ann/#"]
subscribe = ["ann/#"]
"""
LIMITS = "[limits]\npacket = 65536\n"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebBroker]:
    one = WebBroker(tmp_path_factory.mktemp("web"), LIMITS, 'origins = ["https://app.example"]')
    one.start()
    yield one
    one.kill()


def test_what_is_posted_reaches_mqtt_clients_with_its_properties(broker: WebBroker) -> None:
    with MqttInbox(broker.port, "p/#", qos=1) as inbox:
        headers = [
            ("Content-Type", "text/plain"),
            ("Overlane-Property", "site=rome"),
            ("Overlane-Property", "site=berlin"),
            ("Overlane-Expiry", "60"),
        ]
        assert ask(broker.http, "POST", "/topics/p/caf%C3%A9//x", b"hello", headers).status == 204
        assert ask(broker.http, "POST", "/topics/p/0", b"", {"Overlane-QoS": "0"}).status == 202
        eventually(lambda: len(inbox.messages) == 2, "both have come")
        first, second = sorted(inbox.messages, key=lambda one: one.payload, reverse=True)
        assert (first.topic, first.payload, first.qos) == ("p/café//x", b"hello", 1)
        assert first.properties.UserProperty == [("site", "rome"), ("site", "berlin")]
        assert (first.properties.ContentType, first.properties.MessageExpiryInterval) == ("text/plain", 60)
        assert (second.topic, second.payload, second.qos) == ("p/0", b"", 0)


def test_cloud_events_reach_mqtt_clients_in_both_forms(broker: WebBroker) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": 1}
    with MqttInbox(broker.port, "ce/#", qos=1) as inbox:
        binary = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/s", "ce-type": "t", "content-type": "text/x"}
        assert ask(broker.http, "POST", "/topics/ce/1", b"x", binary).status == 204
        batch = {"content-type": "application/cloudevents-batch+json"}
        assert ask(broker.http, "POST", "/topics/ce/2", json.dumps([event, event]).encode(), batch).status == 204
        eventually(lambda: len(inbox.messages) == 3, "all have come")
        one, two, three = inbox.messages
        assert dict(one.properties.UserProperty) == {"specversion": "1.0", "id": "7", "source": "/s", "type": "t"}
        assert [json.loads(each.payload) for each in (two, three)] == [event, event]
        assert two.properties.ContentType == "application/cloudevents+json"


def test_the_retained_message_of_a_topic_can_be_got(broker: WebBroker) -> None:
    assert ask(broker.http, "GET", "/topics/r/1").status == 404
    headers = {"Overlane-Retain": "true", "Content-Type": "text/plain", "Overlane-Property": "a=b"}
    assert ask(broker.http, "POST", "/topics/r/1", b"kept", headers).status == 204
    found = ask(broker.http, "GET", "/topics/r/1")
    assert (found.status, found.body) == (200, b"kept")
    assert found.headers["content-type"] == "text/plain"
    assert found.headers["overlane-property"] == "a=b"
    assert found.headers["link"] == (
        f'<http://{broker.http}/hub>; rel="hub", <http://{broker.http}/topics/r/1>; rel="self"'
    )
    assert found.headers["content-security-policy"] == "sandbox; default-src 'none'"
    head = ask(broker.http, "HEAD", "/topics/r/1")
    assert (head.status, head.body, head.headers["link"]) == (200, b"", found.headers["link"])
    publish(broker.port, "r/1", b"by MQTT", retain=True)
    eventually(lambda: ask(broker.http, "GET", "/topics/r/1").body == b"by MQTT", "replaced")
    assert ask(broker.http, "POST", "/topics/r/1", b"", headers).status == 204
    assert ask(broker.http, "GET", "/topics/r/1").status == 404


def test_events_are_what_is_retained_and_then_what_is_published(broker: WebBroker) -> None:
    ask(broker.http, "POST", "/topics/e/kept", b"0", {"Overlane-Retain": "true"})
    with reading(broker.http, "/events?topic=e/%23&topic=other/%2B") as reader:
        assert reader.answer.headers["content-type"] == "text/event-stream"
        eventually(lambda: reader.payloads == ["0"], "what is retained")
        publish(broker.port, "e/1", b"1")
        ask(broker.http, "POST", "/topics/other/x", b"2")
        ask(broker.http, "POST", "/topics/elsewhere", b"3")
        ask(broker.http, "POST", "/topics/e/2", b"\xff", {"Content-Type": "image/x"})
        eventually(lambda: len(reader.events) == 4, "all events")
    assert [one.data for one in reader.events] == [
        {"topic": "e/kept", "payload": "0", "retain": True},
        {"topic": "e/1", "payload": "1"},
        {"topic": "other/x", "payload": "2"},
        {"topic": "e/2", "payload_base64": "/w==", "content_type": "image/x"},
    ]


def test_events_can_be_filtered_by_content(broker: WebBroker) -> None:
    with reading(broker.http, "/events?topic=w&where=temperature%20%3E%2020") as reader:
        for temperature in (19, 21, 20, 22):
            ask(broker.http, "POST", "/topics/w", json.dumps({"temperature": temperature}).encode())
        eventually(lambda: len(reader.events) == 2, "the hot ones")
    assert [json.loads(one)["temperature"] for one in reader.payloads] == [21, 22]
    refused = ask(broker.http, "GET", "/events?topic=w&where=temperature%20%3E")
    assert (refused.status, refused.error[:30]) == (400, "overlane-where: at character 1")


def test_a_reader_that_has_gone_leaves_no_session(broker: WebBroker) -> None:
    def clients() -> list[str]:
        found = json.loads(ask(broker.admin, "GET", "/clients").body)["items"]
        return [one["id"] for one in found if one["id"].startswith("web-")]

    with reading(broker.http, "/events?topic=gone"):
        eventually(lambda: len(clients()) == 1, "it is there")
    eventually(lambda: clients() == [], "it has gone")


def test_a_stream_is_read_on_from_the_last_event(broker: WebBroker) -> None:
    assert ask(broker.admin, "PUT", "/streams/s1?filter=st/%23").status == 201
    with reading(broker.http, "/events?stream=s1") as reader:
        for number in range(3):
            ask(broker.http, "POST", f"/topics/st/{number}", str(number).encode())
        eventually(lambda: reader.payloads == ["0", "1", "2"], "all")
        first, *_, last = [one.id for one in reader.events]
    ask(broker.http, "POST", "/topics/st/3", b"3")
    with reading(broker.http, "/events?stream=s1", {"Last-Event-ID": last}) as again:
        eventually(lambda: again.payloads == ["3"], "what was missed")
        ask(broker.http, "POST", "/topics/st/4", b"4")
        eventually(lambda: again.payloads == ["3", "4"], "and what follows")
    with reading(broker.http, f"/events?stream=s1&last_event_id={first}") as third:
        eventually(lambda: third.payloads == ["1", "2", "3", "4"], "from the first on")
    ask(broker.admin, "POST", "/streams/s1/commit?to=3")
    with reading(broker.http, "/events?stream=s1", {"Last-Event-ID": first}) as late:
        eventually(lambda: late.payloads == ["3", "4"], "what is kept")
        assert [one.name for one in late.events] == ["gone", "message", "message"]
    assert ask(broker.http, "GET", "/events?stream=none").status == 404
    assert ask(broker.http, "GET", "/events?stream=s1", headers={"Last-Event-ID": "x"}).status == 400


def test_a_slow_reader_is_bounded_and_told_what_it_has_missed(broker: WebBroker) -> None:
    host, port = broker.http.split(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(b"GET /events?topic=slow HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        received = slow.recv(4096)
        assert b"200 OK" in received
        publish(broker.port, "slow", b"x" * 60_000, count=300)
        received += read_until(slow, b"event: lost")
        assert ask(broker.http, "POST", "/topics/slow", b"after").status == 204
        received += read_until(slow, b'"payload":"after"')
        assert received.count(b'"topic":"slow"') < 300


def read_until(connection: socket.socket, wanted: bytes) -> bytes:
    connection.settimeout(60)
    received = b""
    while wanted not in received[-len(wanted) - 70_000 :]:
        part = connection.recv(65_536)
        assert part, "the connection has ended"
        received += part
    return received


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("POST", "/topics/a/%23", {}, b"", 400),
        ("POST", "/topics/", {}, b"", 400),
        ("POST", "/topics/%ff", {}, b"", 400),
        ("POST", "/topics/a%00", {}, b"", 400),
        ("POST", "/topics/$SYS/a", {}, b"", 403),
        ("POST", "/topics/a", {"Overlane-QoS": "3"}, b"", 400),
        ("POST", "/topics/a", {"Overlane-Property": "overlane-deadline=soon"}, b"", 400),
        ("POST", "/topics/a", {}, b"x" * 70_000, 413),
        ("POST", "/topics/a", {"Origin": "https://evil.example"}, b"", 403),
        ("POST", "/topics/a", {"Origin": "https://app.example"}, b"", 204),
        ("PUT", "/topics/a", {}, b"", 405),
        ("GET", "/nothing", {}, None, 404),
        ("GET", "/events", {}, None, 400),
        ("GET", "/events?topic=a&stream=b", {}, None, 400),
        ("GET", "/events?topic=a%23", {}, None, 400),
        ("GET", "/events?topic=$share/g/a", {}, None, 400),
        ("POST", "/hub", {}, b"hub.mode=subscribe", 400),
        ("POST", "/hub", {}, b"\xff", 400),
    ],
)
def test_a_request_is_answered_with_what_is_wrong(
    broker: WebBroker, method: str, path: str, headers: dict[str, str], body: bytes | None, status: int
) -> None:
    found = ask(broker.http, method, path, body, headers)
    assert found.status == status
    if status >= 400:
        assert found.error


def test_a_name_that_dns_could_map_to_the_broker_is_no_host_of_an_anonymous_request(broker: WebBroker) -> None:
    host, port = broker.http.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET /topics/a HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
        assert b" 421 " in connection.recv(4096)


def test_pages_of_allowed_origins_are_told_that_they_may(broker: WebBroker) -> None:
    asked = {
        "Origin": "https://app.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "overlane-retain,content-type",
    }
    found = ask(broker.http, "OPTIONS", "/topics/a", headers=asked)
    assert (found.status, found.headers["access-control-allow-origin"]) == (200, "https://app.example")
    found = ask(broker.http, "OPTIONS", "/topics/a", headers={**asked, "Origin": "https://evil.example"})
    assert (found.status, found.headers["access-control-allow-origin"]) == (400, None)


def test_curl_publishes_and_reads(broker: WebBroker) -> None:
    url = f"http://{broker.http}/topics/curl/1"
    curl = ["curl", "--silent", "--fail", "--max-time", "60"]
    subprocess.run([*curl, "-d", "from curl", "-H", "Overlane-Retain: true", url], check=True)
    events = subprocess.Popen([*curl, "-N", f"http://{broker.http}/events?topic=curl/%23"], stdout=subprocess.PIPE)
    assert events.stdout is not None
    assert b'"payload":"from curl"' in next(line for line in events.stdout if line.startswith(b"data:"))
    events.kill()
    events.wait()
    found = subprocess.run([*curl, url], check=True, capture_output=True)
    assert found.stdout == b"from curl"


def test_any_bytes_on_a_connection_do_no_harm(broker: WebBroker) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    luck = random.Random(seed)
    host, port = broker.http.split(":")
    whole = b"POST /topics/fuzz HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\noverlane-property: a=b\r\n\r\nhello"
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(luck.randrange(1, 12)):
            data[luck.randrange(len(data))] = luck.randrange(256)
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(bytes(data[: luck.randrange(1, len(data) + 1)]))
    assert ask(broker.http, "POST", "/topics/fuzz", b"after").status == 204
    metrics = ask(broker.admin, "GET", "/metrics").body.decode().splitlines()
    errors = [one for one in metrics if one.startswith("overlane_internal_errors_total")]
    assert errors
    assert [one for one in errors if not one.endswith(" 0.0")] == []


def test_users_have_the_rights_that_they_have_by_mqtt(tmp_path: Path) -> None:
    users = tmp_path / "users"
    broker = WebBroker(tmp_path, USERS.format(users=users))
    command = [*broker.command()[:3], "passwd", str(users), "ann"]
    subprocess.run([*command, "--stdin"], input=b"secret\n", check=True, capture_output=True)
    broker.start()
    try:
        ann = {"Authorization": "Basic " + base64.b64encode(b"ann:secret").decode()}
        wrong = {"Authorization": "Basic " + base64.b64encode(b"ann:other").decode()}
        assert ask(broker.http, "POST", "/topics/ann/1", b"x", {**ann, "Overlane-Retain": "true"}).status == 204
        assert ask(broker.http, "POST", "/topics/bob/1", b"x", ann).status == 403
        assert ask(broker.http, "GET", "/topics/ann/1", headers=ann).body == b"x"
        assert ask(broker.http, "GET", "/topics/bob/1", headers=ann).status == 403
        assert ask(broker.http, "GET", "/events?topic=bob/1", headers=ann).status == 403
        for headers in ({}, wrong, {"Authorization": "Basic ???"}, {"Authorization": "Bearer x"}):
            found = ask(broker.http, "POST", "/topics/ann/1", b"x", headers)
            assert (found.status, found.headers["www-authenticate"][:5]) == (401, "Basic")
        with reading(broker.http, "/events?topic=ann/%23", ann) as reader:
            eventually(lambda: reader.payloads == ["x"], "her own")
    finally:
        broker.kill()


def test_a_client_that_publishes_too_fast_is_told_to_wait(tmp_path: Path) -> None:
    one = WebBroker(tmp_path, "[limits]\nmessages_per_second = 1\n")
    one.start()
    try:
        answers = [ask(one.http, "POST", "/topics/fast", b"x", {"Overlane-QoS": "0"}) for _ in range(20)]
        late = [answer for answer in answers if answer.status == 429]
        assert late, [answer.status for answer in answers]
        assert late[0].headers["retry-after"] == "1"
        assert late[0].error == "more than 1 messages a second"
        eventually(lambda: ask(one.http, "POST", "/topics/fast", b"x").status == 204, "it may publish again")
    finally:
        one.kill()
