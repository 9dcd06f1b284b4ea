"""WebSub (W3C Recommendation): what subscribers ask of the hub, how that is verified, and how content is signed.

A request is answered with 202 before anything is checked at the callback. Then the callback is asked whether it meant
it: GET with hub.mode, hub.topic, hub.challenge and hub.lease_seconds in addition to the query that the URL has; it
agrees with 2xx and the challenge as its body. Only then a subscription begins, is renewed with a new lease and secret,
or ends.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlencode, urlsplit

from overlane.core.topics import BadTopic, check_filter
from overlane.web.callback_address import split_callback
from overlane.web.errors import BadWebRequest

LEASE_S = 10 * 86_400
LEASE_S_MIN = 60
LEASE_S_MAX = 30 * 86_400
SECRET_BYTES_MAX = 200
FORM_FIELDS_MAX = 20
TOPICS_PATH = "/topics/"
HUB_PATH = "/hub"

Mode = Literal["subscribe", "unsubscribe"]


@dataclass(frozen=True, slots=True)
class HubRequest:
    """`topic_url`: what the subscriber calls the topic; `filter` is its filter."""

    mode: Mode
    callback: str
    topic_url: str
    filter: str
    lease_s: int = LEASE_S
    secret: str = ""


def read_form(body: bytes) -> dict[str, str]:
    """BadWebRequest if it is no form."""
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=FORM_FIELDS_MAX
        )
    except ValueError:
        raise BadWebRequest("expected a form, as application/x-www-form-urlencoded") from None
    return dict(pairs)


def read_hub_request(form: Mapping[str, str], own_url: str) -> HubRequest:
    """`own_url`: scheme and host of the broker, as the subscriber reaches it. BadWebRequest."""
    mode, callback, topic_url = (form.get(f"hub.{name}", "") for name in ("mode", "callback", "topic"))
    if mode not in ("subscribe", "unsubscribe"):
        raise BadWebRequest(f"hub.mode: got {mode[:40]!a}; expected subscribe or unsubscribe")
    split_callback(callback)
    secret = form.get("hub.secret", "")
    if len(secret.encode()) >= SECRET_BYTES_MAX:
        raise BadWebRequest(f"hub.secret: expected less than {SECRET_BYTES_MAX} bytes")
    return HubRequest(
        "subscribe" if mode == "subscribe" else "unsubscribe",
        callback,
        topic_url,
        filter_of(topic_url, own_url),
        _lease_s(form.get("hub.lease_seconds", "")),
        secret,
    )


def _lease_s(text: str) -> int:
    if not text:
        return LEASE_S
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise BadWebRequest(f"hub.lease_seconds: got {text[:40]!a}; expected a whole number")
    return min(LEASE_S_MAX, max(LEASE_S_MIN, int(text)))


def filter_of(topic_url: str, own_url: str) -> str:
    """The topic or filter that a URL of this broker names; BadWebRequest."""
    expected = f"{own_url}{TOPICS_PATH}TOPIC"
    try:
        parts = urlsplit(topic_url)
    except ValueError:
        raise BadWebRequest(f"hub.topic: expected {expected}") from None
    is_own = f"{parts.scheme}://{parts.netloc}".lower() == own_url.lower()
    if not is_own or not parts.path.startswith(TOPICS_PATH) or parts.query or parts.fragment:
        raise BadWebRequest(f"hub.topic: got {topic_url[:100]!a}; expected {expected}")
    try:
        topic_filter = unquote_to_bytes(parts.path[len(TOPICS_PATH) :]).decode()
        check_filter(topic_filter)
    except UnicodeDecodeError:
        raise BadWebRequest("hub.topic: expected UTF-8, percent-encoded") from None
    except BadTopic as bad:
        raise BadWebRequest(f"hub.topic: {bad}") from None
    return topic_filter


def topic_url(own_url: str, topic: str) -> str:
    return own_url + TOPICS_PATH + quote(topic, "/")


def verification_target(request: HubRequest, challenge: str) -> str:
    """Path and query of the request that asks the callback whether it meant it."""
    asked = {"hub.mode": request.mode, "hub.topic": request.topic_url, "hub.challenge": challenge}
    if request.mode == "subscribe":
        asked["hub.lease_seconds"] = str(request.lease_s)
    return _target(request.callback, asked)


def denial_target(request: HubRequest, reason: str) -> str:
    return _target(request.callback, {"hub.mode": "denied", "hub.topic": request.topic_url, "hub.reason": reason})


def delivery_target(callback: str) -> str:
    return _target(callback, {})


def _target(callback: str, added: Mapping[str, str]) -> str:
    """The query that the callback has stays in front."""
    parts = urlsplit(callback)
    query = "&".join(one for one in (parts.query, urlencode(added)) if one)
    return (parts.path or "/") + (f"?{query}" if query else "")


def signature(secret: str, body: bytes) -> str:
    """The value of X-Hub-Signature."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
