"""WebSub: a hub in the broker, subscribers of the standard library."""

import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from mqttinbox import publish
from webclients import Response, Subscriber, WebBroker, ask

from waiting import eventually

LOCAL = 'callback_networks = ["127.0.0.0/8"]'


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[WebBroker]:
    one = WebBroker(tmp_path / "broker", web=LOCAL)
    one.start()
    yield one
    one.kill()


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    one = Subscriber()
    yield one
    one.close()


def ask_hub(broker: WebBroker, subscriber: Subscriber, topic: str, mode: str = "subscribe", **more: str) -> Response:
    form = {"hub.mode": mode, "hub.callback": subscriber.url, "hub.topic": f"http://{broker.http}/topics/{topic}"}
    return ask(broker.http, "POST", "/hub", urlencode({**form, **more}).encode())


def streams(broker: WebBroker) -> int:
    return ask(broker.admin, "GET", "/streams").body.count(b'"name":"websub.')


def test_a_subscriber_is_verified_and_gets_signed_content(broker: WebBroker, subscriber: Subscriber) -> None:
    more = {"hub.secret": "key", "hub.lease_seconds": "3600"}
    assert ask_hub(broker, subscriber, "a/%23", **more).status == 202
    eventually(lambda: streams(broker) == 1, "verified")
    (asked,) = subscriber.asked
    assert (asked["mine"], asked["hub.mode"], asked["hub.lease_seconds"]) == ("1", "subscribe", "3600")
    assert asked["hub.topic"] == f"http://{broker.http}/topics/a/%23"
    ask(broker.http, "POST", "/topics/a/1", b"one", {"content-type": "text/plain"})
    publish(broker.port, "a/2", b"two")
    eventually(lambda: len(subscriber.got) == 2, "both")
    one, two = subscriber.got
    assert (one.body, two.body, one.query) == (b"one", b"two", {"mine": "1"})
    assert (one.headers["content-type"], one.headers["overlane-topic"]) == ("text/plain", "a/1")
    assert one.headers["x-hub-signature"] == "sha256=" + hmac.new(b"key", b"one", hashlib.sha256).hexdigest()
    assert 'rel="hub"' in one.headers["link"]
    assert f'<http://{broker.http}/topics/a/%23>; rel="self"' in one.headers["link"]
    assert ask_hub(broker, subscriber, "a/%23", "unsubscribe").status == 202
    eventually(lambda: streams(broker) == 0, "unsubscribed")


def test_without_confirmation_nothing_begins_ends_or_is_renewed(broker: WebBroker, subscriber: Subscriber) -> None:
    subscriber.confirms = False
    ask_hub(broker, subscriber, "a")
    eventually(lambda: len(subscriber.asked) == 1, "asked")
    subscriber.confirms = True
    ask_hub(broker, subscriber, "a", **{"hub.secret": "first"})
    eventually(lambda: streams(broker) == 1, "verified")
    subscriber.confirms = False
    ask_hub(broker, subscriber, "a", **{"hub.secret": "second"})
    ask_hub(broker, subscriber, "a", "unsubscribe")
    eventually(lambda: len(subscriber.asked) == 4, "asked each time")
    publish(broker.port, "a", b"x")
    eventually(lambda: len(subscriber.got) == 1, "still subscribed")
    assert subscriber.got[0].headers["x-hub-signature"].endswith(hmac.new(b"first", b"x", hashlib.sha256).hexdigest())
    subscriber.confirms = True
    ask_hub(broker, subscriber, "a", **{"hub.secret": "second"})
    eventually(lambda: len(subscriber.asked) == 5, "asked once more")

    def is_renewed() -> bool:
        publish(broker.port, "a", b"y")
        return subscriber.got[-1].headers["x-hub-signature"].endswith(hmac.new(b"second", b"y", "sha256").hexdigest())

    eventually(is_renewed, "the new secret")
    assert streams(broker) == 1


def test_content_waits_for_a_subscriber_that_fails_through_a_kill(broker: WebBroker, subscriber: Subscriber) -> None:
    ask_hub(broker, subscriber, "a")
    eventually(lambda: streams(broker) == 1, "verified")
    subscriber.status = 500
    for number in range(3):
        assert ask(broker.http, "POST", "/topics/a", str(number).encode()).status == 204
    eventually(lambda: len(subscriber.got) >= 2, "tried again")
    broker.kill()
    subscriber.status = 200
    subscriber.got.clear()
    broker.start()
    eventually(lambda: len(subscriber.got) >= 3, "all of them", 60)
    assert [one.body for one in subscriber.got] == [b"0", b"1", b"2"]


def test_a_subscriber_that_is_gone_is_subscribed_no_more(broker: WebBroker, subscriber: Subscriber) -> None:
    ask_hub(broker, subscriber, "a")
    eventually(lambda: streams(broker) == 1, "verified")
    subscriber.status = 410
    publish(broker.port, "a", b"x")
    eventually(lambda: streams(broker) == 0, "ended")
    assert len(subscriber.got) == 1


def test_a_callback_inside_is_not_reached_unless_the_file_allows_it(tmp_path: Path, subscriber: Subscriber) -> None:
    broker = WebBroker(tmp_path, web="connections = 100")
    broker.start()
    try:
        assert ask_hub(broker, subscriber, "a").status == 202
        log = broker.directory / "log.txt"
        eventually(lambda: "127.0.0.1 is not allowed" in log.read_text(), "refused", said=log.read_text)
        assert subscriber.asked == []
    finally:
        broker.kill()
