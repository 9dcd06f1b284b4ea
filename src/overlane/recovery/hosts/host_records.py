"""What hosts of a domain tell each other through znodes, as values and bytes.

    /hosts/DOMAIN/HOST               a host that takes copies of other brokers; ephemeral
    /endpoints/DOMAIN/BROKER@HOST    where the replica of a broker at a host listens for replication; ephemeral
    /mirrors/DOMAIN/BROKER           which hosts should have a copy; written by the primary of the broker
    /moves/DOMAIN/BROKER             to which host an operator wants the broker to move; removed by the primary there

A host reads those of its own domain alone. A znode that is malformed counts as one that is not there.
"""

from typing import TypeVar

import msgspec

from overlane.coordination.records import MalformedRecord, Role, is_address, is_name

HOSTS, ENDPOINTS, MIRRORS, MOVES = "/hosts", "/endpoints", "/mirrors", "/moves"
RECORD_BYTES_MAX = 16 * 1024
HOSTS_MAX = 16


class HostRecord(msgspec.Struct, frozen=True):
    role: Role
    """Backups are preferred as mirrors."""
    score: float = 1.0
    """From 0 to 1 (`scoring`), by its own measurement."""
    brokers: tuple[str, ...] = ()
    """Whom its certificate names: other brokers cannot run there. Empty where there are no certificates."""


class EndpointRecord(msgspec.Struct, frozen=True):
    address: str


class MirrorsRecord(msgspec.Struct, frozen=True):
    epoch: int
    """Of the primary that wrote it: one of an earlier epoch does not overwrite it."""
    primary: str
    """The host on which the broker runs."""
    hosts: tuple[str, ...]
    """That should have a copy."""
    role: Role = "plain"
    listeners: tuple[str, ...] = ()
    """Kinds of listeners for clients that the broker has."""


class MoveRecord(msgspec.Struct, frozen=True):
    host: str


Record = TypeVar("Record", HostRecord, EndpointRecord, MirrorsRecord, MoveRecord)


def encode_record(record: HostRecord | EndpointRecord | MirrorsRecord | MoveRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_record(path: str, data: bytes, kind: type[Record]) -> Record:
    """MalformedRecord."""
    if len(data) > RECORD_BYTES_MAX:
        raise MalformedRecord(path, f"{len(data)} bytes; at most {RECORD_BYTES_MAX} are allowed")
    try:
        record = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRecord(path, str(error)) from None
    if (reason := _flaw(record)) is not None:
        raise MalformedRecord(path, reason)
    return record


def _flaw(record: object) -> str | None:
    match record:
        case HostRecord() if not 0 <= record.score <= 1:
            return "the score is not between 0 and 1"
        case HostRecord() if not all(map(is_name, record.brokers)):
            return "a broker has no valid name"
        case EndpointRecord() if not is_address(record.address):
            return "the address is not HOST:PORT"
        case MirrorsRecord() if len(record.hosts) > HOSTS_MAX or len(record.listeners) > HOSTS_MAX:
            return f"more than {HOSTS_MAX} hosts or listeners"
        case MirrorsRecord() if not all(map(is_name, (record.primary, *record.hosts))):
            return "a host has no valid name"
        case MoveRecord() if not is_name(record.host):
            return "the host has no valid name"
        case _:
            return None


def endpoint_name(broker: str, host: str) -> str:
    """Names of brokers have no @."""
    return f"{broker}@{host}"
