"""Payload formats: JSON, CBOR and MessagePack, by name and by content type.

CBOR needs a package of its own (the extra `mediation`), which is loaded when the first rule needs it. A payload comes
from anybody: whatever a decoder finds wrong with it is a failure of the rule, and nothing else.
"""

import math
from importlib import import_module
from typing import Any

import msgspec

from overlane.mediation.rule import Format, RuleFailed

PAYLOAD_BYTES_MAX = 1 << 20
"""A larger payload is not decoded: it would hold up everything else."""

CONTENT_TYPES: dict[Format, str] = {
    "json": "application/json",
    "cbor": "application/cbor",
    "msgpack": "application/vnd.msgpack",
}
_NUMBERS_DEEP = 64

_json = msgspec.json.Decoder().decode
_msgpack = msgspec.msgpack.Decoder().decode


def format_of(content_type: str | None) -> Format:
    """By a content type such as `application/senml+cbor`; JSON where it says nothing of it."""
    subtype = (content_type or "").partition(";")[0].strip().lower().rpartition("/")[2]
    last = subtype.rpartition("+")[2]
    if last == "cbor":
        return "cbor"
    return "msgpack" if last in ("msgpack", "x-msgpack", "vnd.msgpack") else "json"


def decode(payload: bytes, form: Format) -> object:
    """RuleFailed if it is none."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise RuleFailed(f"a payload of {len(payload)} bytes; at most {PAYLOAD_BYTES_MAX} are decoded")
    try:
        return _json(payload) if form == "json" else _msgpack(payload) if form == "msgpack" else _cbor().loads(payload)
    except Exception as error:  # a decoder of hostile input may raise anything
        raise RuleFailed(f"the payload is not {form}: {str(error)[:200]}") from None


def encode(value: object, form: Format) -> bytes:
    """RuleFailed if the format cannot express it."""
    if not _is_finite(value, 0):
        raise RuleFailed("the payload would have a number that is infinite or none, or be nested too deeply")
    try:
        if form == "cbor":
            return bytes(_cbor().dumps(value))
        return msgspec.json.encode(value) if form == "json" else msgspec.msgpack.encode(value)
    except Exception as error:  # what CBOR knows and others do not
        raise RuleFailed(f"the payload cannot be written as {form}: {str(error)[:200]}") from None


def is_available(form: Format) -> bool:
    if form != "cbor":
        return True
    try:
        import_module("cbor2")
    except ImportError:
        return False
    return True


def _cbor() -> Any:
    return import_module("cbor2")


def _is_finite(value: object, depth: int) -> bool:
    if depth > _NUMBERS_DEEP:
        return False
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(_is_finite(one, depth + 1) for one in value.values())
    return not isinstance(value, list) or all(_is_finite(one, depth + 1) for one in value)
