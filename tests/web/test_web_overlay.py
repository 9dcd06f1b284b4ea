"""The web side across brokers, in a browser, and through kill -9."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser import PATIENCE_MS, chromium
from mqttinbox import MqttInbox, publish
from webclients import WebBroker, ask, reading

from brokers import free_port
from overlays import RealOverlay
from waiting import eventually


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealOverlay, str]]:
    """Brokers a and b; a has an HTTP listener."""
    net = RealOverlay(tmp_path_factory.mktemp("pair"), {"a-b": 'latency = "5ms"'})
    http = f"127.0.0.1:{free_port()}"
    text = net.file.read_text()
    net.file.write_text(text.replace("[brokers.a]\n", f'[brokers.a]\nhttp = "{http}"\n', 1))
    try:
        net.start()
        yield net, http
    finally:
        net.end()


def port_of(net: RealOverlay, name: str) -> int:
    return int(net[name].mqtt.rpartition(":")[2])


def test_http_at_one_broker_meets_mqtt_at_another(pair: tuple[RealOverlay, str]) -> None:
    net, http = pair
    with MqttInbox(port_of(net, "b"), "x/#", qos=1) as inbox, reading(http, "/events?topic=y/%23") as reader:
        headers = {"Overlane-Property": "site=rome", "Content-Type": "text/plain"}

        def has_arrived() -> bool:
            """As soon as a knows of the subscription at b."""
            assert ask(http, "POST", "/topics/x/1", b"to b", headers).status == 204
            return bool(inbox.messages)

        eventually(has_arrived, "by MQTT at b", 60, said=net.logs)
        assert inbox.messages[0].payload == b"to b"
        assert inbox.messages[0].properties.UserProperty == [("site", "rome")]

        def has_come() -> bool:
            publish(port_of(net, "b"), "y/1", b"to a")
            return "to a" in reader.payloads

        eventually(has_come, "as an event at a", 60, said=net.logs)


def test_a_content_filter_holds_for_messages_of_other_brokers(pair: tuple[RealOverlay, str]) -> None:
    net, http = pair
    with MqttInbox(port_of(net, "b"), "f/#", qos=1, where="temperature > 20") as inbox:

        def is_known() -> bool:
            """Whether a knows of the subscription at b."""
            ask(http, "POST", "/topics/f/1", b'{"temperature": 100}')
            return bool(inbox.messages)

        eventually(is_known, "known at a", 60, said=net.logs)
        for temperature in (19, 21, 22):
            ask(http, "POST", "/topics/f/1", json.dumps({"temperature": temperature}).encode())
        publish(port_of(net, "a"), "f/1", b'{"temperature": 23}', qos=0)
        publish(port_of(net, "a"), "f/1", b'{"temperature": 18}', qos=0)
        publish(port_of(net, "a"), "f/1", b'{"temperature": 24}', qos=1)
        publish(port_of(net, "a"), "f/1", b'{"temperature": 25}', qos=1)

        def found() -> set[int]:
            return {json.loads(one.payload)["temperature"] for one in inbox.messages}

        eventually(lambda: found() >= {21, 22, 23, 24, 25}, "the hot ones", 60, said=net.logs)
    assert found() == {21, 22, 23, 24, 25, 100}


@pytest.fixture
def origin() -> Iterator[str]:
    """Of an empty page on a server of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>page</title>")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_an_event_source_of_a_browser_reads_on_after_a_restart(tmp_path: Path, origin: str) -> None:
    broker = WebBroker(tmp_path, web=f'origins = ["{origin}"]')
    broker.start()
    try:
        ask(broker.admin, "PUT", "/streams/s?filter=s")
        with chromium() as browser:
            page = browser.new_page()
            page.goto(origin)
            page.evaluate(
                """url => { window.got = []; const source = new EventSource(url);
                source.onopen = () => { window.isOpen = true };
                source.onmessage = event => window.got.push(JSON.parse(event.data).payload); }""",
                f"http://{broker.http}/events?stream=s",
            )
            page.wait_for_function("window.isOpen", timeout=PATIENCE_MS)
            posted = (
                "url => fetch(url, {method: 'POST', body: '1', headers: {'Overlane-QoS': '1'}}).then(r => r.status)"
            )
            assert page.evaluate(posted, f"http://{broker.http}/topics/s") == 204
            page.wait_for_function("window.got.length == 1", timeout=PATIENCE_MS)
            broker.kill()
            broker.start()
            ask(broker.http, "POST", "/topics/s", b"2")
            ask(broker.http, "POST", "/topics/s", b"3")
            page.wait_for_function("window.got.length == 3", timeout=PATIENCE_MS)
            assert page.evaluate("window.got") == ["1", "2", "3"]
    finally:
        broker.kill()


def has_grown(answered: list[str], to: int) -> bool:
    return len(answered) > to


@pytest.mark.slow
def test_nothing_that_was_answered_is_lost_by_kill_9(tmp_path: Path) -> None:
    broker = WebBroker(tmp_path)
    broker.start()
    try:
        MqttInbox(broker.port, "k/#", qos=1, client_id="reader", expiry_s=3600).close()
        answered: list[str] = []
        ends = threading.Event()

        def post(worker: int) -> None:
            number = 0
            while not ends.is_set():
                name = f"{worker}-{number}"
                try:
                    status = ask(broker.http, "POST", "/topics/k/1", name.encode()).status
                except OSError:
                    continue
                if status == 204:
                    answered.append(name)
                    number += 1

        threads = [threading.Thread(target=post, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            before = len(answered)
            eventually(partial(has_grown, answered, before + 50), "under way", 60)
            broker.kill()
            broker.start()
        ends.set()
        for thread in threads:
            thread.join()
        with MqttInbox(broker.port, "k/#", qos=1, client_id="reader", expiry_s=3600) as inbox:
            eventually(lambda: set(answered) <= {one.payload.decode() for one in inbox.messages}, "all of them", 60)
    finally:
        broker.kill()
