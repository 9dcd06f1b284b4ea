"""Streams of a running broker over its admin API: through kill -9, for users with their own rights, by offset."""

import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import mqtt5
import msgspec
import pytest

from overlane.adminapi.views import StreamMessagePage, WriterBatchView, WriterMessageView
from overlane.node.security.password_hashes import Cost
from overlane.node.security.users import set_password
from overlane.secret import Secret
from waiting import WITHIN_S
from watched import Answer, WatchedBroker, let_in

pytestmark = pytest.mark.slow

RULES = (
    '[security]\nanonymous = true\nusers = "users.txt"\n'
    '[[access]]\nuser = "anonymous"\npublish = ["#"]\nsubscribe = ["#"]\n'
    '[[access]]\nuser = "alice"\nsubscribe = ["in/a/#"]\npublish = ["out/#"]\n'
    '[[access]]\nuser = "bob"\nsubscribe = ["#"]\n'
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[WatchedBroker]:
    for name in ("alice", "bob"):
        set_password(tmp_path / "users.txt", name, Secret(name.encode()), Cost(memory_kib=64, times=1))
    running = WatchedBroker(tmp_path, RULES)
    running.start()
    yield running
    running.kill()


def ask(broker: WatchedBroker, method: str, path: str, body: bytes | None = None, user: str = "") -> Answer:
    headers = {"Authorization": "Basic " + base64.b64encode(f"{user}:{user}".encode()).decode()} if user else {}
    host, _, port = broker.admin.rpartition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=WITHIN_S)) as connection:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())


def make(broker: WatchedBroker, topic_filter: str = "in/#", user: str = "", name: str = "s") -> Answer:
    return ask(broker, "PUT", f"/streams/{name}?filter={quote(topic_filter, safe='')}", user=user)


def read(broker: WatchedBroker, start: int = 0, user: str = "") -> list[tuple[int, bytes]]:
    answer = ask(broker, "GET", f"/streams/s/messages?from={start}&format=msgpack", user=user)
    assert answer.status == 200, answer.body
    return [(one.offset, one.payload) for one in msgspec.msgpack.decode(answer.body, type=StreamMessagePage).messages]


def publish(broker: WatchedBroker, *payloads: bytes, topic: str = "in/a/1") -> None:
    with let_in(broker.port, "publisher") as caller:
        for payload in payloads:
            assert caller.publish(topic, payload) == mqtt5.PubAckReasonCode.SUCCESS


def test_what_was_acknowledged_is_in_the_log_after_a_power_cut(broker: WatchedBroker) -> None:
    made = make(broker)
    assert made.status == 201
    publish(broker, b"0", b"1", b"2")
    broker.kill()
    broker.start()
    assert read(broker) == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert ask(broker, "POST", f"/streams/s/commit?to=2&since={made.json['since_ns']}").status == 204
    broker.kill()
    broker.start()
    publish(broker, b"3")
    assert read(broker, 2) == [(2, b"2"), (3, b"3")]
    view = broker.get("/streams/s")
    assert (view["broker"], view["first"], view["next"], view["messages"], view["lost"]) == ("here", 2, 4, 2, 0)
    assert ask(broker, "GET", "/streams/s/messages?from=1").status == 410
    assert ask(broker, "POST", "/streams/s/commit?to=3&since=1").status == 410
    assert ask(broker, "DELETE", "/streams/s").status == 204
    assert ask(broker, "GET", "/streams/s").status == 404


def test_a_stream_is_made_once_and_stays_what_it_is(broker: WatchedBroker) -> None:
    first, again = make(broker), make(broker)
    assert (first.status, again.status) == (201, 200)
    assert first.json == again.json
    assert make(broker, "other/#").status == 409
    assert make(broker, "in/#/x", name="t").status == 400
    assert make(broker, name="a%20b").status == 400
    assert [one["name"] for one in broker.get("/streams")["items"]] == ["s"]


def test_a_stream_is_made_when_all_that_is_retained_is_in_it_and_on_disk(broker: WatchedBroker) -> None:
    notes = tuple(
        WriterMessageView(topic=f"in/{number}", payload=b"%d" % number, retain=True) for number in range(1_000)
    )
    part = msgspec.json.encode(WriterBatchView(batch=0, start=0, messages=notes))
    assert ask(broker, "POST", "/writers/w", part).status == 200
    made = ask(broker, "PUT", "/streams/s?filter=in%2F%23&retained=true")
    assert (made.status, made.json["first"], made.json["next"], made.json["messages"]) == (201, 0, 1_000, 1_000)
    assert sorted(int(payload) for _, payload in read(broker)) == list(range(1_000))


def test_a_user_has_streams_of_its_own_with_its_own_rights(broker: WatchedBroker) -> None:
    assert make(broker, "in/#", user="alice").status == 403
    assert make(broker, "in/a/#", user="alice").status == 201
    publish(broker, b"x")
    assert read(broker, user="alice") == [(0, b"x")]
    assert read(broker) == [(0, b"x")]
    assert ask(broker, "GET", "/streams/s", user="bob").status == 404
    assert ask(broker, "DELETE", "/streams/s", user="bob").status == 404
    assert make(broker, "in/a/#", user="bob").status == 409
    assert ask(broker, "GET", "/streams", user="bob").json == {"items": []}
    assert ask(broker, "GET", "/streams", user="mallory").status == 401


def test_a_message_comes_with_its_properties_and_time(broker: WatchedBroker) -> None:
    since_ns = make(broker).json["since_ns"]
    publish(broker, b"x")
    page: dict[str, Any] = broker.get("/streams/s/messages")
    ((offset, arrived_ns, *rest),) = page["messages"]
    assert (offset, page["next"], page["since_ns"]) == (0, 1, since_ns)
    assert arrived_ns > since_ns
    assert rest == ["in/a/1", base64.b64encode(b"x").decode(), 1, False, []]


def write(
    broker: WatchedBroker, batch: int, start: int, *payloads: bytes, topic: str = "in/w", user: str = ""
) -> Answer:
    notes = tuple(WriterMessageView(topic=topic, payload=payload) for payload in payloads)
    body = msgspec.json.encode(WriterBatchView(batch=batch, start=start, messages=notes))
    return ask(broker, "POST", "/writers/w", body, user)


def test_a_batch_that_is_sent_again_after_a_power_cut_is_published_once(broker: WatchedBroker) -> None:
    make(broker)
    assert write(broker, 0, 0, b"a", b"b").json == {"count": 2, "refused": ""}
    broker.kill()
    broker.start()
    assert write(broker, 0, 0, b"a", b"b", b"c").json == {"count": 3, "refused": ""}
    assert write(broker, 0, 5, b"f").status == 409
    assert write(broker, 1, 0, b"d").json == {"count": 1, "refused": ""}
    assert [payload for _, payload in read(broker)] == [b"a", b"b", b"c", b"d"]


def test_a_writer_publishes_with_the_rights_of_its_user(broker: WatchedBroker) -> None:
    assert write(broker, 0, 0, b"a", user="alice").status == 403
    assert write(broker, 0, 0, b"a", topic="out/1", user="alice").status == 200
    assert write(broker, 0, 0, b"a", topic="in/#").status == 400
    assert ask(broker, "POST", "/writers/w", json.dumps({"batch": 0}).encode()).status == 400
