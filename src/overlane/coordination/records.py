"""What brokers write into znodes, and how it is read: checked like any input from outside.

    /brokers/routing/NAME, /brokers/edges/DOMAIN/NAME, /brokers/others/NAME
                        a broker that is there; ephemeral, the only one per broker. Each reads the folders that concern
                        it: an edge those of its domain and of the routing brokers, so it reads as much in an overlay of
                        a thousand domains as in one of two
    /names/NAME         where the broker of this name is registered, and of which store it is: one name, one broker
    /reports/NAME       its load, and which bundles its clients use: a digest, replaced at most every 50 ms
    /suspects/NAME      the routing brokers that it should be linked with and cannot reach
    /leader             who decides; ephemeral. The number of its creation is the leader's epoch
    /epoch              replaced with every change of the leader, in one transaction with it: what a leader writes is
                        checked against its version, since a new `/leader` has the version of the old one
    /assignments/SHARD  bundles, their routing brokers, and those that would carry them next; written by the leader
                        alone
    /wanted             how many routing brokers there should be; written by the leader alone
    /config             the configuration of the overlay, with its version

A znode that is malformed, too large, or says what it must not changes nothing and is reported.
"""

from base64 import b64decode, b64encode
from typing import Literal, TypeAlias, TypeVar

import msgspec

from overlane.core.bundles import BUNDLES
from overlane.errors import OverlaneError

BROKERS, NAMES, REPORTS, SUSPECTS = "/brokers", "/names", "/reports", "/suspects"
ROUTING, EDGES, OTHERS = f"{BROKERS}/routing", f"{BROKERS}/edges", f"{BROKERS}/others"
LEADER, EPOCH, ASSIGNMENTS, WANTED, CONFIG = "/leader", "/epoch", "/assignments", "/wanted", "/config"
SHARDS = 16
"""Of the assignment: a move rewrites one of them, and a broker reads all."""
SUSPECTS_MAX = 1_000
ROUTING_BROKERS_MAX = 1_000
NAME_BYTES_MAX = 255
RECORD_BYTES_MAX = 64 * 1024
DIGEST_BYTES_MAX = 2 * 1024
ADDRESSES_MAX = 16

Role: TypeAlias = Literal["edge", "routing", "backup", "plain"]


class MalformedRecord(OverlaneError):
    """A znode does not contain what it should."""

    error_code = "OVL-307"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class BrokerRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """A broker that is there, and where it is reached."""

    domain: str
    role: Role
    instance: int
    """Of its store: tells two brokers with one name apart."""
    overlay: tuple[str, ...] = ()
    """Where other brokers dial it, `HOST:PORT`, tried in turn; empty: it dials them."""
    clients: dict[str, str] = {}
    """Where clients connect, by the name of the listener."""
    admin: str = ""
    version: str = ""
    epoch: int = 0
    """Of its replica set, where its records are on several hosts: only a later one may take the name over."""
    host: str = ""
    """On which it runs, if that is not its own."""
    takes_clients: bool = False
    """Whether it answers where sessions of its domain are, and takes clients that others of the domain pass on."""


class NameRecord(msgspec.Struct, frozen=True):
    """Where the broker of a name is registered; it stays when the broker has gone."""

    instance: int
    path: str


class ReportRecord(msgspec.Struct, frozen=True):
    """What the leader has to know of a broker, in at most 2 kB."""

    load: float = 0.0
    wants: str = ""
    offers: str = ""
    """The bundles that its clients subscribe to and publish in, as sets of bits in base64."""
    latency_us: dict[str, int] = {}
    """To routing brokers, where it has been measured."""
    is_leaving: bool = False


class SuspectsRecord(msgspec.Struct, frozen=True):
    unreachable: tuple[str, ...] = ()
    """Routing brokers, by name, sorted."""


class LeaderRecord(msgspec.Struct, frozen=True):
    name: str


class EpochRecord(msgspec.Struct, frozen=True):
    """Who became the leader with this version of the node."""

    name: str = ""
    session: int = 0


class WantedRecord(msgspec.Struct, frozen=True):
    routing: int
    """How many routing brokers."""
    since_s: int = 0
    why: str = ""


class Assigned(msgspec.Struct, frozen=True, array_like=True):
    broker: str
    since_s: int
    """Unix time; for people."""
    why: str
    standby: str = ""
    """The routing broker that carries it next: edges are linked with both, and tell both the same."""


class ShardRecord(msgspec.Struct, frozen=True):
    epoch: int
    """Of the leader that wrote it."""
    bundles: dict[int, Assigned] = {}


class ConfigRecord(msgspec.Struct, frozen=True):
    version: int
    text: str
    """The network file, as it was pushed."""
    pushed_s: int = 0
    by: str = ""


Record = TypeVar(
    "Record",
    BrokerRecord,
    NameRecord,
    ReportRecord,
    SuspectsRecord,
    LeaderRecord,
    EpochRecord,
    ShardRecord,
    WantedRecord,
    ConfigRecord,
)


def encode(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


def decode(path: str, data: bytes, kind: type[Record]) -> Record:
    """MalformedRecord."""
    limit = {ReportRecord: DIGEST_BYTES_MAX, ConfigRecord: 512 * 1024}.get(kind, RECORD_BYTES_MAX)
    if len(data) > limit:
        raise MalformedRecord(path, f"{len(data)} bytes; at most {limit} are allowed")
    try:
        record = msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise MalformedRecord(path, str(error)) from None
    if (reason := _flaw(record)) is not None:
        raise MalformedRecord(path, reason)
    return record


def _flaw(record: object) -> str | None:
    match record:
        case BrokerRecord() if not is_name(record.domain):
            return "the domain is no valid name"
        case BrokerRecord() if len(record.overlay) > ADDRESSES_MAX:
            return f"{len(record.overlay)} addresses; at most {ADDRESSES_MAX} are allowed"
        case BrokerRecord() if not all(map(is_address, (*record.overlay, *record.clients.values()))):
            return "an address is not HOST:PORT"
        case NameRecord() if registered_name(record.path) is None:
            return "the path is none of a registration"
        case ReportRecord() if not 0 <= record.load < 1_000:
            return "the load is not between 0 and 1,000"
        case ReportRecord() if any(us < 0 for us in record.latency_us.values()):
            return "a latency is negative"
        case SuspectsRecord() if len(record.unreachable) > SUSPECTS_MAX or not all(map(is_name, record.unreachable)):
            return f"not a list of at most {SUSPECTS_MAX} names"
        case LeaderRecord() if not is_name(record.name):
            return "no valid name"
        case WantedRecord() if not 0 <= record.routing <= ROUTING_BROKERS_MAX:
            return f"the number is not between 0 and {ROUTING_BROKERS_MAX}"
        case ShardRecord(bundles=bundles) if bundles and not 0 <= min(bundles) <= max(bundles) < BUNDLES:
            return f"a bundle is not between 0 and {BUNDLES - 1}"
        case ShardRecord() if not all(map(is_name, {one.broker for one in record.bundles.values()})):
            return "a broker has no valid name"
        case ShardRecord() if not all(map(is_name, {one.standby for one in record.bundles.values()} - {""})):
            return "a standby has no valid name"
        case ConfigRecord() if record.version < 1:
            return "the version is less than 1"
        case _:
            return None


def is_name(text: str) -> bool:
    return (
        0 < len(text.encode()) <= NAME_BYTES_MAX and text.isprintable() and "/" not in text and text not in (".", "..")
    )


def is_address(text: str) -> bool:
    host, separator, port = text.rpartition(":")
    return bool(host) and separator == ":" and len(port) <= 5 and port.isdecimal() and 0 < int(port) < 65_536


def folder_of(record: BrokerRecord) -> str:
    """Where a broker registers: those that need to know it read this folder."""
    match record.role:
        case "routing":
            return ROUTING
        case "edge":
            return f"{EDGES}/{record.domain}"
        case _:
            return OTHERS


def registered_name(path: str) -> str | None:
    """The name of the broker whose registration is at this path; None: it is none."""
    match path.split("/"):
        case ["", "brokers", "routing" | "others", name] | ["", "brokers", "edges", _, name] if is_name(name):
            return name
        case _:
            return None


def decode_registration(path: str, data: bytes) -> BrokerRecord:
    """MalformedRecord, also where the broker would be registered elsewhere."""
    record = decode(path, data, BrokerRecord)
    if registered_name(path) is None:
        raise MalformedRecord(path, "no valid name")
    if path.rpartition("/")[0] != folder_of(record):
        raise MalformedRecord(path, f"a broker of the role {record.role} in {record.domain} does not register here")
    return record


def decode_shard(path: str, data: bytes) -> ShardRecord:
    """MalformedRecord, also where a bundle belongs into another shard: one says nothing about those of others."""
    record = decode(path, data, ShardRecord)
    if any(shard_path(shard) != path for shard in {bundle % SHARDS for bundle in record.bundles}):
        raise MalformedRecord(path, "a bundle is that of another shard")
    return record


def shard_path(bundle: int) -> str:
    return f"{ASSIGNMENTS}/{bundle % SHARDS}"


# Sets of bundles


def pack(bundles: frozenset[int]) -> str:
    bits = sum(1 << bundle for bundle in bundles)
    return b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


def unpack(text: str) -> frozenset[int]:
    """What is not a set of bundles is an empty one: a digest is a hint, and the next one follows soon."""
    try:
        bits = int.from_bytes(b64decode(text, validate=True), "little")
    except ValueError:
        return frozenset()
    return frozenset(bundle for bundle in range(BUNDLES) if bits >> bundle & 1)
