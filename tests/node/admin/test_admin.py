"""The admin API of a running broker: what it answers, to whom, and that it holds nothing up."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import mqtt5
import msgspec
import pytest

from overlane.adminapi.views import (
    BrokerView,
    ClientDetail,
    ClientPage,
    ConnectionView,
    DeliveryList,
    EventList,
    LinkList,
    QueuesView,
    RetainedPage,
    RetainedRemoved,
    RetainedView,
    RouteList,
    SnapshotView,
    SubscriptionPage,
    SubscriptionView,
    TopicPage,
    TopicView,
)
from waiting import WITHIN_S, eventually
from watched import Caller, WatchedBroker, let_in

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    running = WatchedBroker(
        tmp_path_factory.mktemp("admin"),
        '[topics."alarms/#"]\ndeadline = "60ms"\nreliability = "reliable"\n'
        '[brokers.there]\n[[links]]\nends = ["here", "there"]\nlatency = "10ms"\n',
    )
    running.start()
    yield running
    running.kill()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    directory = tmp_path_factory.mktemp("guarded")
    (directory / "admin.token").write_text(f"{TOKEN}\n")
    (directory / "admin.token").chmod(0o600)
    running = WatchedBroker(directory, '[security]\nadmin_token = "admin.token"\n')
    running.start()
    yield running
    running.kill()


def status_if(broker: WatchedBroker, is_wanted: Callable[[BrokerView], bool]) -> BrokerView | None:
    view = msgspec.convert(broker.get("/status"), BrokerView)
    return view if is_wanted(view) else None


# What it tells


def test_the_status_tells_of_clients_messages_store_and_links(broker: WatchedBroker) -> None:
    with let_in(broker.port, "glance") as caller:
        caller.subscribe("glance/#", 1)
        caller.publish("elsewhere", b"payload")
        answer = eventually(lambda: status_if(broker, lambda view: view.clients > 0), "a client")
    assert (answer.name, answer.state, answer.not_ready) == ("here", "serving", ())
    assert answer.listeners["mqtt"] == broker.address
    assert answer.sessions >= 1
    assert answer.subscriptions >= 1
    assert answer.traffic.messages_in >= 1
    assert (answer.store.state, answer.store.trouble) == ("writing", "")
    assert (answer.links, answer.links_up) == (1, 0)
    assert answer.process.id == broker.pid
    assert answer.process.memory_bytes > 10_000_000


def test_a_client_is_shown_with_its_connection_and_subscriptions(broker: WatchedBroker) -> None:
    with let_in(broker.port, "shown", expiry_s=600) as caller:
        caller.subscribe("shown/#", 1)
        found = msgspec.convert(broker.get("/clients/shown"), ClientDetail)
    connection = found.client.connection
    assert isinstance(connection, ConnectionView)
    assert (connection.listener, connection.version, connection.is_secure) == ("mqtt", "5.0", False)
    assert (found.client.user, found.client.session_expiry_s, found.client.expires_s) == (None, 600, None)
    assert found.subscriptions == (
        SubscriptionView(
            client="shown",
            filter="shown/#",
            group="",
            qos=1,
            identifier=0,
            no_local=False,
            retain_as_published=False,
            deadline_ms=None,
            reliable=False,
        ),
    )


def test_a_client_that_is_away_is_shown_with_what_waits_for_it(broker: WatchedBroker) -> None:
    with let_in(broker.port, "away", expiry_s=600) as caller:
        caller.subscribe("away", 1)
    eventually(lambda: broker.get("/clients/away")["client"]["connection"] is None)
    with let_in(broker.port, "writer") as caller:
        caller.publish("away", b"12345")
    client = msgspec.convert(broker.get("/clients/away"), ClientDetail).client
    assert client.queue == QueuesView(messages=1, bytes=client.queue.bytes, in_flight=0)
    assert client.queue.bytes >= 5
    assert client.expires_s is not None
    assert 500 < client.expires_s <= 600


def test_clients_come_in_pages_that_neither_repeat_nor_leave_out(broker: WatchedBroker) -> None:
    names = [f"paged/{number:02}" for number in range(7)]
    callers = [let_in(broker.port, name) for name in names]
    found, after = [], ""
    for _ in range(3):
        page = msgspec.convert(broker.get(f"/clients?filter=paged/&limit=3&after={quote(after)}"), ClientPage)
        assert page.total == 7
        found.append([client.id for client in page.items])
        after = page.next or ""
    assert found == [names[:3], names[3:6], names[6:]]
    assert after == ""
    for caller in callers:
        caller.close()


def test_a_client_with_odd_signs_in_its_identifier_can_be_asked_for(broker: WatchedBroker) -> None:
    name = "a/b ?#%25ü"
    with let_in(broker.port, name):
        assert broker.get(f"/clients/{quote(name, safe='')}")["client"]["id"] == name


def test_an_operator_ends_a_connection_and_the_client_is_told_so(broker: WatchedBroker) -> None:
    with let_in(broker.port, "unwanted") as caller:
        assert broker.request("/clients/unwanted", "DELETE").status == 204
        told = caller.read(mqtt5.DisconnectPacket)
        assert told.reason_code == mqtt5.DisconnectReasonCode.ADMINISTRATIVE_ACTION
        assert caller.is_closed()
    assert broker.request("/clients/unwanted", "DELETE").status == 404
    with let_in(broker.port, "unwanted"):
        pass  # it may come again


def test_an_operator_deletes_a_session_whether_its_client_is_connected_or_not(broker: WatchedBroker) -> None:
    with let_in(broker.port, "leaver", expiry_s=600) as caller:
        caller.subscribe("leaver", 1)
    eventually(lambda: broker.get("/clients/leaver")["client"]["connection"] is None)
    assert broker.request("/clients/leaver", "DELETE").status == 404  # it is not connected
    assert broker.request("/clients/leaver?session=yes", "DELETE").status == 400
    assert broker.request("/clients/leaver?session=true", "DELETE").status == 204
    assert broker.request("/clients/leaver").status == 404
    with let_in(broker.port, "stayer", expiry_s=600) as caller:
        caller.subscribe("stayer", 1)
        assert broker.request("/clients/stayer?session=true", "DELETE").status == 204
        caller.read(mqtt5.DisconnectPacket)
    assert broker.request("/clients/stayer").status == 404
    assert broker.request("/clients/stayer?session=true", "DELETE").status == 404


def test_retained_messages_come_in_pages_and_are_removed_by_filter(broker: WatchedBroker) -> None:
    topics = [f"kept/{number}" for number in range(5)]
    with let_in(broker.port, "keeper") as caller:
        for topic in (*topics, "other"):
            caller.publish(topic, b"12345", retain=True)
        first = msgspec.convert(broker.get("/retained?filter=kept/%23&limit=3"), RetainedPage)
        second = msgspec.convert(broker.get(f"/retained?filter=kept/%23&limit=3&after={first.next}"), RetainedPage)
        assert [one.topic for one in (*first.items, *second.items)] == topics
        assert second.next is None
        assert (first.items[0].bytes, first.items[0].qos, first.items[0].expires_s) == (5, 1, None)
        assert first.items[0].age_s < 600
        removed = msgspec.json.decode(
            broker.request("/retained?filter=kept/%23&limit=3", "DELETE").body, type=RetainedRemoved
        )
        assert removed == RetainedRemoved(removed=3, has_more=True)
        broker.request("/retained?filter=kept/%23", "DELETE")
        assert broker.get("/retained?filter=kept/%23")["items"] == []
        caller.subscribe("kept/#")
        caller.subscribe("other")
        assert caller.read(mqtt5.PublishPacket).topic == "other"
    for wrong in ("/retained", "/retained?filter=a%23", "/retained?filter=%24SYS/%23", "/retained?filter=a&limit=0"):
        assert broker.request(wrong, "DELETE").status == 400
    assert broker.get("/retained?filter=other")["items"] != []


def test_subscriptions_are_found_by_what_is_in_them(broker: WatchedBroker) -> None:
    with let_in(broker.port, "subscriber") as caller:
        caller.subscribe("found/a")
        caller.subscribe("$share/team/found/b", 1)
        page = msgspec.convert(broker.get("/subscriptions?filter=found/&limit=1"), SubscriptionPage)
        assert (page.total, page.items[0].filter, page.items[0].group) == (2, "found/b", "team")
        assert page.next is not None
        rest = msgspec.convert(broker.get(f"/subscriptions?filter=found/&after={quote(page.next)}"), SubscriptionPage)
        assert [(one.client, one.filter) for one in rest.items] == [("subscriber", "found/a")]


def test_topics_are_counted_with_the_quality_they_have(broker: WatchedBroker) -> None:
    with let_in(broker.port, "publisher") as caller:
        for _ in range(3):
            caller.publish("alarms/busy", b"12345")
        caller.publish("alarms/calm", b"1", retain=True)
        page = msgspec.convert(broker.get("/topics?filter=alarms/%23"), TopicPage)
        busiest = msgspec.convert(broker.get("/topics?filter=alarms/%23&order=messages&limit=1"), TopicPage)
    busy = TopicView(
        topic="alarms/busy", messages=3, bytes=15, deadline_ms=60.0, reliability="reliable", is_retained=False
    )
    calm = TopicView(
        topic="alarms/calm", messages=1, bytes=1, deadline_ms=60.0, reliability="reliable", is_retained=True
    )
    assert page == TopicPage(items=(busy, calm), total=2, next=None)
    assert busiest == TopicPage(items=(busy,), total=2, next=None)


def test_retained_messages_are_counted(broker: WatchedBroker) -> None:
    before = msgspec.convert(broker.get("/retained/count"), RetainedView)
    with let_in(broker.port, "keeper") as caller:
        caller.publish("kept", b"x" * 1000, retain=True)
    after = msgspec.convert(broker.get("/retained/count"), RetainedView)
    assert after.messages == before.messages + 1
    assert after.bytes >= before.bytes + 1000


def test_a_link_of_the_file_is_shown_though_its_neighbour_never_came(broker: WatchedBroker) -> None:
    (link,) = msgspec.convert(broker.get("/links"), LinkList).items
    assert (link.peer, link.state, link.latency_ms, link.loss) == ("there", "down", None, None)


def test_there_are_no_routes_where_nobody_needs_anything(broker: WatchedBroker) -> None:
    assert msgspec.convert(broker.get("/routes"), RouteList).items == ()


def test_a_glance_is_all_of_it_at_once(broker: WatchedBroker) -> None:
    with let_in(broker.port, "glancing") as caller:
        caller.publish("alarms/glance", b"x")
    found = msgspec.convert(broker.get("/glance"), SnapshotView)
    assert found.broker.name == "here"
    assert [one.peer for one in found.links] == ["there"]
    assert found.events == msgspec.convert(broker.get("/events"), EventList)
    assert found.deliveries == msgspec.convert(broker.get("/deliveries"), DeliveryList)
    published = {one.filter: one.messages for one in found.deliveries.published}
    assert published["alarms/#"] >= 1
    assert found.deliveries.items == ()


def test_the_broker_is_alive_and_ready(broker: WatchedBroker) -> None:
    assert broker.get("/health") == {"alive": True}
    assert broker.get("/ready") == {"ready": True, "reasons": []}


# What is wrong with a request


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/nowhere", 404, "not found"),
        ("/clients/nobody", 404, "no client"),
        ("/clients?limit=0", 400, "limit"),
        ("/clients?limit=1001", 400, "limit"),
        ("/clients?limit=many", 400, "limit"),
        ("/topics?filter=a%23", 400, "filter"),
        ("/topics?order=colour", 400, "order"),
        ("/topics?order=messages&after=a", 400, "after"),
        ("/events?after=yesterday", 400, "after"),
        ("/glance?after=-1", 400, "after"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(broker: WatchedBroker, path: str, status: int, error: str) -> None:
    answer = broker.request(path)
    assert answer.status == status
    assert error in answer.json["error"]


def test_a_method_that_is_not_offered_is_refused(broker: WatchedBroker) -> None:
    assert broker.request("/status", "DELETE").status == 405
    assert broker.request("/clients", "POST").status == 405


# Who may ask


def test_a_name_that_could_be_anybodys_is_no_host_where_there_is_no_token(broker: WatchedBroker) -> None:
    assert broker.request("/status", Host="rebound.example.org").status == 421
    assert broker.request("/status", Host="127.0.0.1.example.org:8001").status == 421
    assert broker.request("/status", Host="localhost:8001").status == 200
    assert broker.request("/status", Host="[::1]:8001").status == 200


def test_a_web_page_of_another_origin_gets_nothing_and_changes_nothing(broker: WatchedBroker) -> None:
    with let_in(broker.port, "cherished") as caller:
        for origin in ("https://evil.example.org", "null", "http://127.0.0.1:1"):
            assert broker.request("/clients/cherished", "DELETE", Origin=origin).status == 403
            assert broker.request("/status", Origin=origin).status == 403
        assert caller.subscribe("still-connected") == mqtt5.SubAckReasonCode(0)
    assert broker.request("/status", Origin=f"http://{broker.admin}").status == 200


@pytest.mark.parametrize("path", ["/status", "/metrics", "/openapi.json", "/clients"])
def test_with_a_token_nothing_is_told_to_those_who_have_none(guarded: WatchedBroker, path: str) -> None:
    known = {"Authorization": f"Bearer {TOKEN}"}
    wrong = [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
    ]
    assert guarded.request(path, **known).status == 200
    for headers in wrong:
        answer = guarded.request(path, **headers)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_with_a_token_any_host_may_be_named(guarded: WatchedBroker) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "broker.example.org"}
    assert guarded.request("/status", **headers).status == 200


def test_health_and_readiness_need_no_token(guarded: WatchedBroker) -> None:
    assert guarded.request("/health").status == 200
    assert guarded.request("/ready").status == 200


def test_nobody_ends_a_connection_without_the_token(guarded: WatchedBroker) -> None:
    with let_in(guarded.port, "safe"):
        assert guarded.request("/clients/safe", "DELETE").status == 401
        answer = guarded.request("/clients/safe", "DELETE", Authorization=f"Bearer {TOKEN}")
        assert answer.status == 204


def test_an_admin_address_for_others_needs_a_token(tmp_path: Path) -> None:
    running = WatchedBroker(tmp_path)
    file = tmp_path / "network.toml"
    file.write_text(file.read_text().replace(f'admin = "{running.admin}"', 'admin = "0.0.0.0:8001"'))
    with pytest.raises(AssertionError, match="admin_token"):
        running.start()


# Limits


def test_connections_that_ask_for_nothing_are_bounded(broker: WatchedBroker) -> None:
    host, _, port = broker.admin.rpartition(":")
    idle = [socket.create_connection((host, int(port)), WITHIN_S) for _ in range(130)]

    def closed() -> int:
        count = 0
        for one in idle:
            one.setblocking(False)
            try:
                count += one.recv(1) == b""
            except BlockingIOError:
                pass
            except ConnectionResetError:
                count += 1
        return count

    eventually(lambda: closed() >= 30, "those beyond a hundred are closed")
    for one in idle:
        one.close()
    eventually(lambda: _answers(broker), "it answers again")


def _answers(broker: WatchedBroker) -> bool:
    try:
        return broker.request("/health").status == 200
    except ConnectionError:
        return False


def test_a_request_with_an_endless_head_is_cut_off(broker: WatchedBroker) -> None:
    host, _, port = broker.admin.rpartition(":")
    with socket.create_connection((host, int(port)), WITHIN_S) as endless:
        endless.sendall(b"GET / HTTP/1.1\r\n" + b"X-Filler: x\r\n" * 10_000)
        try:
            answer = endless.recv(4096)
        except ConnectionResetError:
            answer = b""
    assert b" 200 " not in answer
    assert _answers(broker)


# Its own description


def test_the_openapi_document_describes_every_path_with_the_types_of_its_answers(broker: WatchedBroker) -> None:
    document = broker.get("/openapi.json")
    assert document["openapi"].startswith("3.")
    assert set(document["paths"]) >= {
        "/clients",
        "/clients/{id}",
        "/health",
        "/links",
        "/metrics",
        "/ready",
        "/retained/count",
        "/routes",
        "/status",
        "/subscriptions",
        "/topics",
    }
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path
            for response in operation["responses"].values():
                for content in response.get("content", {}).values():
                    reference = content["schema"].get("$ref")
                    assert reference is None or reference.rpartition("/")[2] in schemas
    assert set(schemas["BrokerView"]["properties"]) == set(BrokerView.__struct_fields__)


def test_a_caller_that_never_finishes_its_packet_is_shown_as_a_connection_and_no_client(broker: WatchedBroker) -> None:
    with Caller(broker.port) as caller:
        caller.write(b"\x10")
        eventually(lambda: status_if(broker, lambda view: view.connections > view.clients), "a connection")


def test_a_store_that_cannot_write_makes_the_broker_not_ready_and_says_so(tmp_path: Path) -> None:
    broker = WatchedBroker(tmp_path, '[limits]\nstore = "1MiB"\n')
    broker.start()
    try:
        with let_in(broker.port, "away", expiry_s=600) as caller:
            caller.subscribe("t", 1)
        with let_in(broker.port, "writer") as writer:
            packets = [
                mqtt5.PublishPacket("t", b"x" * 20_000, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=number)
                for number in range(1, 91)
            ]
            writer.send(*packets)

            def failing() -> bool:
                answer = broker.request("/ready")
                return answer.status == 503 and answer.json["reasons"] == ["the store cannot write: full"]

            eventually(failing, "not ready")
            status = msgspec.convert(broker.get("/status"), BrokerView)
            assert status.store.state == "failing"
            assert status.store.trouble
            assert "overlane_store_failing 1.0" in broker.request("/metrics").body.decode()
            assert broker.request("/health").status == 200
    finally:
        broker.kill()


DOCS = Path(__file__).parents[3] / "docs"


def test_every_request_is_documented(broker: WatchedBroker) -> None:
    told = (DOCS / "admin.md").read_text()
    document = broker.get("/openapi.json")
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"`{method.upper()} {path}`" in told


def test_every_metric_is_documented(broker: WatchedBroker) -> None:
    told = (DOCS / "operations.md").read_text()
    for line in broker.request("/metrics").body.decode().splitlines():
        if line.startswith("# TYPE overlane_") and not line.startswith("# TYPE overlane_overlay_"):
            assert f"`{line.split()[2]}`" in told
