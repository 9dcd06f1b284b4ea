"""The messages that an HTTP request publishes.

    Content-Type                 the content type of the message
    Overlane-QoS                 1 (default): the response comes when the message is stored; 0
    Overlane-Retain              true: the message is retained
    Overlane-Expiry              seconds, or a duration such as "5m"
    Overlane-Response-Topic, Overlane-Correlation-Data
    Overlane-Property            name=value, percent-encoded where needed: a user property; any number of them

CloudEvents 1.0, by the HTTP binding:

    binary       ce-NAME headers become user properties NAME, as the MQTT binding has them
    structured   application/cloudevents+json: the body is checked, and published as it is
    batch        application/cloudevents-batch+json: one message for each event, in the structured form
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import msgspec

from overlane.pubsub.message import EXPIRY_S_MAX
from overlane.pubsub.properties import NONE, Properties
from overlane.quantities import SECOND, parse_duration
from overlane.web.errors import BadWebRequest

BATCH_MAX = 1_000
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
CE_PREFIX = "ce-"
CE_REQUIRED = ("specversion", "id", "source", "type")
SPECVERSION = "1.0"

_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Draft:
    """A message without its topic. `expiry_s` None: it does not expire."""

    payload: bytes
    qos: int = 1
    retain: bool = False
    expiry_s: int | None = None
    properties: Properties = NONE


def read_drafts(headers: Iterable[tuple[str, str]], body: bytes, properties_max: int) -> list[Draft]:
    """The messages of a request, at least one; BadWebRequest."""
    found: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for name, value in headers:
        name, value = name.lower(), value.strip()
        if name == "overlane-property":
            pairs.append(_pair(value))
        elif name.startswith(CE_PREFIX):
            pairs.append((_attribute(name), _decoded(name, value)))
        else:
            found.setdefault(name, value)
    if len(pairs) > properties_max:
        raise BadWebRequest(f"{len(pairs)} properties; at most {properties_max} are allowed", 431)
    draft = _draft(found, body, pairs)
    kind = found.get("content-type", "").partition(";")[0].strip().lower()
    if kind == BATCH:
        return [_of_event(draft, event) for event in _batch(body)]
    if kind == STRUCTURED:
        _check_event(_json(body))
    elif kind.startswith("application/cloudevents"):
        raise BadWebRequest(f"content type {kind[:60]!a}; CloudEvents are accepted as JSON", 415)
    elif any(name == "specversion" for name, _ in pairs):
        _check_event(dict(pairs))
    return [draft]


def _draft(headers: Mapping[str, str], body: bytes, pairs: Sequence[tuple[str, str]]) -> Draft:
    qos = headers.get("overlane-qos", "1")
    if qos not in ("0", "1"):
        raise BadWebRequest(f"Overlane-QoS: got {qos[:40]!a}; expected 0 or 1")
    retain = headers.get("overlane-retain", "false").lower()
    if retain not in _FLAGS:
        raise BadWebRequest(f"Overlane-Retain: got {retain[:40]!a}; expected true or false")
    response_topic = headers.get("overlane-response-topic")
    correlation = headers.get("overlane-correlation-data")
    properties = Properties(
        content_type=headers.get("content-type") or None,
        response_topic=None if response_topic is None else _topic(response_topic),
        correlation_data=None if correlation is None else _decoded("Overlane-Correlation-Data", correlation).encode(),
        user_properties=tuple(pairs),
    )
    try:
        properties.encode()
    except ValueError as bad:
        raise BadWebRequest(f"a header: {bad}") from None
    return Draft(body, int(qos), _FLAGS[retain], _expiry_s(headers.get("overlane-expiry")), properties)


def _expiry_s(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        expiry_s = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else parse_duration(text) // SECOND
    except ValueError:
        expiry_s = -1
    if not 0 < expiry_s <= EXPIRY_S_MAX:
        raise BadWebRequest(f'Overlane-Expiry: got {text[:40]!a}; expected seconds, or a duration such as "5m"')
    return expiry_s


def _topic(text: str) -> str:
    topic = _decoded("Overlane-Response-Topic", text)
    if not topic or "+" in topic or "#" in topic:
        raise BadWebRequest(f"Overlane-Response-Topic: got {topic[:40]!a}; expected a topic without wildcards")
    return topic


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise BadWebRequest(f"Overlane-Property: got {text[:40]!a}; expected name=value")
    return _decoded("Overlane-Property", name.strip()), _decoded("Overlane-Property", value.strip())


def _decoded(header: str, text: str) -> str:
    """Percent-encoded UTF-8; BadWebRequest where it is none."""
    try:
        decoded = unquote(text, errors="strict")
        decoded.encode()
    except ValueError:
        raise BadWebRequest(f"{header}: got {text[:40]!a}; expected UTF-8, percent-encoded") from None
    if "\0" in decoded:
        raise BadWebRequest(f"{header}: a null character")
    return decoded


# CloudEvents


def _attribute(header: str) -> str:
    name = header.removeprefix(CE_PREFIX)
    if not (name.isascii() and name.isalnum()):
        raise BadWebRequest(f"{header[:40]!a}: the name of an attribute of a CloudEvent has letters and digits only")
    return name


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise BadWebRequest("the body is not JSON") from None


def _batch(body: bytes) -> list[Any]:
    events = _json(body)
    if not isinstance(events, list):
        raise BadWebRequest("a batch of CloudEvents is a JSON array")
    if not 0 < len(events) <= BATCH_MAX:
        raise BadWebRequest(f"a batch of {len(events)} events; expected 1 to {BATCH_MAX}")
    return events


def _of_event(draft: Draft, event: Any) -> Draft:
    _check_event(event)
    return replace(
        draft, payload=msgspec.json.encode(event), properties=draft.properties._replace(content_type=STRUCTURED)
    )


def _check_event(event: Any) -> None:
    if not isinstance(event, dict):
        raise BadWebRequest("a CloudEvent is a JSON object")
    for name in CE_REQUIRED:
        if not isinstance(event.get(name), str) or not event[name]:
            raise BadWebRequest(f"a CloudEvent needs the attribute {name}, a text that is not empty")
    if event["specversion"] != SPECVERSION:
        raise BadWebRequest(f"CloudEvents {event['specversion'][:20]!a}; expected {SPECVERSION}")
