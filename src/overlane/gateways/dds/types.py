"""Types of DDS topics as bytes (XTypes), so that gateways can tell them to each other.

A domain whose applications send no type information learns the type from a gateway whose domain has some. The bytes are
the type's identifier, and the type objects of everything in it.
"""

from collections import deque
from typing import Any

import cyclonedds._clayer as clayer
import msgspec
from cyclonedds.core import DDSException
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl._typesupport.DDS.XTypes._ddsi_xt_type_object import TypeIdentifier, TypeObject
from cyclonedds.idl._xt_builder import XTInterpreter, XTTypeIdScanner
from cyclonedds.util import duration

TYPE_WITHIN_S = 5
PARTS_MAX = 256
HEAD_BYTES = 4

_Told = tuple[bytes, dict[bytes, bytes]]
_decode = msgspec.msgpack.Decoder(_Told).decode


def fetch_type(participant: DomainParticipant, type_id: Any) -> bytes:
    """Ask the domain for a type and all that it consists of; DDSException if nobody answers."""
    first = _id_bytes(type_id)
    found: dict[bytes, bytes] = {}
    asked = deque([type_id])
    while asked:
        one = asked.pop()
        key = _id_bytes(one)
        if key in found:
            continue
        if len(found) >= PARTS_MAX:
            raise DDSException(DDSException.DDS_RETCODE_OUT_OF_RESOURCES, f"a type of more than {PARTS_MAX} parts")
        answer = clayer.ddspy_get_typeobj(participant._ref, key, duration(seconds=TYPE_WITHIN_S))
        if isinstance(answer, int):
            raise DDSException(answer, "no answer to a request for a type")
        found[key] = bytes(answer)
        asked += XTTypeIdScanner.find_all_typeids(_object(found[key]))
    return msgspec.msgpack.encode((first, found))


def build_type(told: bytes) -> Any:
    """The type as a class of Cyclone DDS. ValueError if it is none."""
    try:
        first, parts = _decode(told)
        objects = {_identifier(key): _object(value) for key, value in parts.items()}
        return XTInterpreter.xt_to_class(_identifier(first), objects)[0]
    except Exception as error:  # of bytes of another gateway
        raise ValueError(f"a type that cannot be read: {type(error).__name__}: {error}") from None


def _id_bytes(type_id: Any) -> bytes:
    return bytes(type_id.serialize(use_version_2=True)[HEAD_BYTES:])


def _identifier(data: bytes) -> Any:
    return TypeIdentifier.deserialize(data, has_header=False, use_version_2=True)


def _object(data: bytes) -> Any:
    return TypeObject.deserialize(data, has_header=False, use_version_2=True)
