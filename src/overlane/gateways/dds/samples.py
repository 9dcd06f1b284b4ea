"""Samples of DDS as messages of the overlay.

    PREFIX/announce/GATEWAY          what the domain of a gateway has, retained
    PREFIX/samples/GATEWAY/TOPIC     samples as CDR, with the user properties below
    PREFIX/TOPIC                     with format = "json"

Names of topics are percent-encoded, so that each is one level.
"""

import math
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple
from urllib.parse import quote, unquote

KIND = "overlane-dds-kind"
TIME = "overlane-dds-time"
GATEWAY = "overlane-dds-gateway"
CONTENT_TYPE = "application/x-cdr"
INFINITE_NS = (1 << 63) - 1
CROSSING = (
    *("Durability", "Reliability", "History", "Lifespan", "Deadline", "LatencyBudget", "Liveliness", "Ownership"),
    *("OwnershipStrength", "DestinationOrder", "TransportPriority", "DataRepresentation"),
)
"""QoS policies that a writer elsewhere takes over."""


class SampleKind(Enum):
    WRITE = "write"
    DISPOSE = "dispose"


class Sample(NamedTuple):
    kind: SampleKind
    data: bytes
    """CDR, with its header; of one that is disposed, at least the key."""
    source_ns: int


def announce_topic(prefix: str, gateway: str) -> str:
    return f"{prefix}/announce/{gateway}"


def sample_topic(prefix: str, gateway: str, topic: str) -> str:
    return f"{prefix}/samples/{gateway}/{quote(topic, safe='')}"


def json_topic(prefix: str, topic: str) -> str:
    return f"{prefix}/{quote(topic, safe='')}"


def last_level(topic: str) -> str:
    return unquote(topic.rpartition("/")[2])


def properties_of(sample: Sample, gateway: str) -> tuple[tuple[str, str], ...]:
    return (KIND, sample.kind.value), (TIME, str(sample.source_ns)), (GATEWAY, gateway)


def sample_of(body: bytes, properties: Mapping[str, str]) -> Sample:
    """ValueError if it is none."""
    source = properties.get(TIME, "")
    if not source.isdecimal() or len(source) > 19:
        raise ValueError("a sample without a source time")
    if len(body) < 4:
        raise ValueError("a sample without a header of CDR")
    return Sample(SampleKind(properties.get(KIND, "")), body, int(source))


def crossing_qos(qos: Mapping[str, object]) -> dict[str, object]:
    """What of a writer's QoS another gateway is told. One that has to assert its liveliness itself does so here; there
    the gateway does it."""
    found = {name: value for name, value in qos.items() if name in CROSSING}
    liveliness = found.get("Liveliness")
    if isinstance(liveliness, dict):
        found["Liveliness"] = {**liveliness, "kind": "Automatic"}
    return found


def is_reliable(qos: Mapping[str, object]) -> bool:
    reliability = qos.get("Reliability")
    return isinstance(reliability, dict) and reliability.get("kind") == "Reliable"


def expiry_s(qos: Mapping[str, object]) -> int | None:
    """Lifespan, rounded up to seconds."""
    lifespan = qos.get("Lifespan")
    nanos = lifespan.get("lifespan") if isinstance(lifespan, dict) else None
    return None if not isinstance(nanos, int) or nanos >= INFINITE_NS else max(1, math.ceil(nanos / 1e9))
