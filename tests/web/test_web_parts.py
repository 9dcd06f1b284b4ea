"""The pure parts of the web side: requests to messages, events, WebSub, and addresses of callbacks."""

import hashlib
import hmac
import json
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.core.units import MS, SECOND
from overlane.pubsub.properties import Properties
from overlane.web.allowances import Allowances
from overlane.web.callback_address import is_allowed, split_callback
from overlane.web.errors import BadWebRequest
from overlane.web.event_stream import message_event, read_position, write_position
from overlane.web.publish_request import BATCH, STRUCTURED, Draft, read_drafts
from overlane.web.responses import message_headers
from overlane.web.websub import (
    LEASE_S_MAX,
    filter_of,
    read_form,
    read_hub_request,
    signature,
    topic_url,
    verification_target,
)

EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"a": 1}}


def test_headers_say_how_a_message_is_published() -> None:
    headers = [
        ("Content-Type", "text/plain"),
        ("Overlane-QoS", "0"),
        ("Overlane-Retain", "true"),
        ("Overlane-Expiry", "5m"),
        ("Overlane-Property", "site=rome"),
        ("Overlane-Property", "caf%C3%A9=a%3Db"),
        ("Overlane-Response-Topic", "answers/1"),
        ("Overlane-Correlation-Data", "42"),
    ]
    properties = Properties("text/plain", "answers/1", b"42", False, (("site", "rome"), ("café", "a=b")))
    assert read_drafts(headers, b"x", 32) == [Draft(b"x", 0, True, 300, properties)]
    assert read_drafts([], b"x", 32) == [Draft(b"x")]


def test_a_cloud_event_of_binary_form_becomes_user_properties_and_comes_back() -> None:
    headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "7"),
        ("ce-source", "/sensors"),
        ("ce-type", "com.example.read"),
        ("ce-subject", "caf%C3%A9"),
        ("content-type", "application/json"),
    ]
    (draft,) = read_drafts(headers, b"{}", 32)
    pairs = (("specversion", "1.0"), ("id", "7"), ("source", "/sensors"), ("type", "com.example.read"))
    assert draft.properties == Properties("application/json", user_properties=(*pairs, ("subject", "café")))
    assert message_headers("a/b", draft.properties) == [
        ("content-type", "application/json"),
        ("overlane-topic", "a/b"),
        ("ce-specversion", "1.0"),
        ("ce-id", "7"),
        ("ce-source", "/sensors"),
        ("ce-type", "com.example.read"),
        ("ce-subject", "caf%C3%A9"),
    ]


def test_structured_events_and_batches_are_published_in_the_structured_form() -> None:
    body = json.dumps(EVENT).encode()
    assert read_drafts([("content-type", STRUCTURED)], body, 32) == [
        Draft(body, properties=Properties(content_type=STRUCTURED))
    ]
    drafts = read_drafts([("content-type", f"{BATCH}; charset=utf-8")], json.dumps([EVENT, EVENT]).encode(), 32)
    assert [json.loads(one.payload) for one in drafts] == [EVENT, EVENT]
    assert {one.properties.content_type for one in drafts} == {STRUCTURED}


@pytest.mark.parametrize(
    ("headers", "body", "told"),
    [
        ({"overlane-qos": "2"}, b"", "Overlane-QoS: got '2'; expected 0 or 1"),
        ({"overlane-retain": "yes"}, b"", "Overlane-Retain: got 'yes'; expected true or false"),
        ({"overlane-expiry": "soon"}, b"", "Overlane-Expiry: got 'soon'"),
        ({"overlane-property": "a"}, b"", "Overlane-Property: got 'a'; expected name=value"),
        ({"overlane-property": "a=%ff"}, b"", "expected UTF-8"),
        ({"overlane-property": "a=%00"}, b"", "a null character"),
        ({"overlane-response-topic": "a/#"}, b"", "a topic without wildcards"),
        ({"ce-specversion": "1.0", "ce-id": "1"}, b"", "needs the attribute source"),
        ({"ce-specversion": "0.3", "ce-id": "1", "ce-source": "s", "ce-type": "t"}, b"", "CloudEvents '0.3'"),
        ({"ce-a-b": "1"}, b"", "letters and digits only"),
        ({"content-type": STRUCTURED}, b"no", "not JSON"),
        ({"content-type": STRUCTURED}, b"[]", "a JSON object"),
        ({"content-type": BATCH}, b"{}", "a JSON array"),
        ({"content-type": BATCH}, b"[]", "a batch of 0 events"),
        ({"content-type": BATCH}, b"[1]", "a JSON object"),
        ({"content-type": "application/cloudevents+avro"}, b"", "accepted as JSON"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(headers: dict[str, str], body: bytes, told: str) -> None:
    with pytest.raises(BadWebRequest) as caught:
        read_drafts(headers.items(), body, 32)
    assert told in str(caught.value)


KNOWN = (
    *("content-type", "overlane-qos", "overlane-retain", "overlane-expiry", "overlane-property"),
    *("overlane-response-topic", "overlane-correlation-data", "accept"),
    *("ce-id", "ce-specversion", "ce-source", "ce-type", "ce-x"),
)
VALUES = ("1.0", "1", "true", BATCH, STRUCTURED, "a=b", "%", "%00", "%ff", "\udcff")
NAMES = st.sampled_from(KNOWN) | st.text(max_size=10)
TEXTS = st.sampled_from(VALUES) | st.text(max_size=20)


@examples(200)
@given(st.lists(st.tuples(NAMES, TEXTS), max_size=8), st.sampled_from([b"", b"[]", b"{}", b"[" * 5000]) | st.binary())
def test_any_headers_and_body_are_messages_or_a_bad_request(headers: list[tuple[str, str]], body: bytes) -> None:
    try:
        drafts = read_drafts(headers, body, 4)
    except BadWebRequest as bad:
        if not 400 <= bad.status < 500:
            raise
        return
    for draft in drafts:
        encoded = draft.properties.encode()
        assert isinstance(encoded, bytes)
        for name, value in message_headers("a", draft.properties):
            assert f"{name}{value}".isascii()
            assert not {"\r", "\n", "\0"} & set(name + value)


def test_an_event_is_one_line_of_json_whatever_the_payload() -> None:
    encoded = Properties("text/plain", user_properties=(("a", "b\nc"),)).encode()
    assert message_event("t", b"x\ny", 1, True, encoded, "5-7") == (
        b'id: 5-7\ndata: {"topic":"t","payload":"x\\ny","qos":1,"retain":true,"content_type":"text/plain",'
        b'"properties":[["a","b\\nc"]]}\n\n'
    )
    assert message_event("t", b"\xff", 0, False, b"") == b'data: {"topic":"t","payload_base64":"/w=="}\n\n'


@pytest.mark.parametrize("text", ["", "5", "-", "5-", "a-1", "5-1-2", "٣-1", "1-" + "9" * 30])
def test_what_is_no_position_is_none(text: str) -> None:
    assert read_position(text) is None
    assert read_position(write_position(5, 7)) == (5, 7)


# WebSub

OWN = "https://events.example"


def test_a_topic_has_a_url_and_back() -> None:
    assert topic_url(OWN, "a/b c/#") == f"{OWN}/topics/a/b%20c/%23"
    assert filter_of(f"{OWN}/topics/a/b%20c/%23", OWN) == "a/b c/#"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"hub.mode": "publish"}, "hub.mode"),
        ({"hub.callback": "ftp://x/"}, "begins with http"),
        ({"hub.callback": "http://user@x/"}, "user name"),
        ({"hub.callback": "http://x/#a"}, "fragment"),
        ({"hub.callback": "http://x:99999/"}, "is no URL"),
        ({"hub.callback": "http://x/a b"}, "ASCII"),
        ({"hub.topic": "https://other.example/topics/a"}, "hub.topic"),
        ({"hub.topic": f"{OWN}/a"}, "hub.topic"),
        ({"hub.topic": f"{OWN}/topics/%ff"}, "UTF-8"),
        ({"hub.topic": f"{OWN}/topics/a%23"}, "hub.topic"),
        ({"hub.secret": "x" * 200}, "hub.secret"),
        ({"hub.lease_seconds": "-1"}, "hub.lease_seconds"),
    ],
)
def test_a_wrong_request_of_a_subscriber_is_refused(changed: dict[str, str], told: str) -> None:
    form = {"hub.mode": "subscribe", "hub.callback": "http://x/", "hub.topic": f"{OWN}/topics/a"}
    assert read_hub_request(form, OWN).filter == "a"
    with pytest.raises(BadWebRequest, match=told):
        read_hub_request({**form, **changed}, OWN)


def test_verification_keeps_the_query_of_the_callback() -> None:
    form = read_form(
        b"hub.mode=subscribe&hub.callback=http://x/cb?a=1%26b=2&hub.topic=https://events.example/topics/t"
        b"&hub.lease_seconds=99999999999"
    )
    request = read_hub_request(form, OWN)
    assert request.lease_s == LEASE_S_MAX
    assert verification_target(request, "c") == (
        "/cb?a=1&b=2&hub.mode=subscribe&hub.topic=https%3A%2F%2Fevents.example%2Ftopics%2Ft"
        f"&hub.challenge=c&hub.lease_seconds={LEASE_S_MAX}"
    )


def test_content_is_signed_with_the_secret() -> None:
    assert signature("key", b"body") == "sha256=" + hmac.new(b"key", b"body", hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1"),
        *("224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "2002:7f00:1::", "host"),
    ],
)
def test_a_callback_cannot_be_inside(address: str) -> None:
    assert not is_allowed(address)


def test_a_callback_can_be_outside_or_where_the_file_allows_it() -> None:
    assert is_allowed("8.8.8.8")
    assert is_allowed("2606:4700::1111")
    assert is_allowed("10.1.2.3", [ip_network("10.0.0.0/8")])
    assert is_allowed("::ffff:10.1.2.3", [ip_network("10.0.0.0/8")])
    assert not is_allowed("10.1.2.3", [ip_network("127.0.0.0/8"), ip_network("::/0")])
    assert split_callback("https://x.example/a")[1:] == ("x.example", 443)


# Messages a second


def test_a_client_publishes_as_much_as_it_may_and_no_more() -> None:
    allowances = Allowances()
    sent = 0
    for now in range(0, 10 * SECOND, MS):
        if allowances.has_left("ann", 5, now):
            allowances.charge("ann", 1, 5, now)
            sent += 1
    assert 54 <= sent <= 56  # a second's at once, and then one each 200 ms
    assert allowances.has_left("bob", 5, now)


def test_a_batch_is_paid_for_later() -> None:
    allowances = Allowances()
    allowances.charge("ann", 20, 5, 0)
    assert not allowances.has_left("ann", 5, 3 * SECOND)
    assert allowances.has_left("ann", 5, 3 * SECOND + MS)


def test_those_who_have_not_published_for_longest_are_forgotten() -> None:
    allowances = Allowances(2)
    for now, name in enumerate(("ann", "bob", "ann", "cid")):
        allowances.charge(name, 10, 1, now)
    assert [allowances.has_left(name, 1, 4) for name in ("ann", "bob", "cid")] == [False, True, False]


def test_a_header_that_is_no_utf_8_is_a_bad_request() -> None:
    with pytest.raises(BadWebRequest, match=r"Overlane-Correlation-Data: got .*; expected UTF-8"):
        read_drafts([("overlane-correlation-data", "\udcff")], b"", 10)
