"""What management agents write into znodes, below `/items/DOMAIN`, checked like any input from outside.

master          the agent that decides; ephemeral
epoch           replaced with every change of the master, in one transaction with it: what a master writes is
                checked against its version
agents/NAME     an agent that is there: capacity and computing power of its broker, whom it cannot reach, what it
                measures; ephemeral
drained/NAME    brokers that an operator has drained; they stay so until undrained
plan            the plan of the domain with its case base; packed
policy          the policy of the present state: where every item is now
"""

from typing import TypeVar

import msgspec

from overlane.coordination.records import MalformedRecord, is_name
from overlane.items.plans import BadDomainPlan, DomainPlan, unpack_plan
from overlane.items.policy import ItemPolicy

ITEMS = "/items"
REPORT_BYTES_MAX = 256 * 1024
POLICY_BYTES_MAX = 500_000


class Paths:
    def __init__(self, domain: str) -> None:
        self.root = f"{ITEMS}/{domain}"
        self.master = f"{self.root}/master"
        self.epoch = f"{self.root}/epoch"
        self.agents = f"{self.root}/agents"
        self.drained = f"{self.root}/drained"
        self.plan = f"{self.root}/plan"
        self.policy = f"{self.root}/policy"

    @property
    def folders(self) -> tuple[str, ...]:
        """In the order in which they are made."""
        return ITEMS, self.root, self.agents, self.drained


class MasterRecord(msgspec.Struct, frozen=True):
    name: str
    session: int = 0


class AgentReport(msgspec.Struct, frozen=True):
    capacity: float
    """Messages per second."""
    power: float = 1.0
    """Computing power: the greatest becomes master."""
    unreachable: tuple[str, ...] = ()
    is_overloaded: bool = False
    risk: float = 0.0
    """Measured Pr(V > C)."""
    rates: dict[str, float] = {}
    """Messages per second published here, by item."""


T = TypeVar("T", MasterRecord, AgentReport, ItemPolicy)


def encode(record: MasterRecord | AgentReport | ItemPolicy) -> bytes:
    return msgspec.json.encode(record)


def decode(path: str, data: bytes, kind: type[T]) -> T:
    """MalformedRecord."""
    limit = POLICY_BYTES_MAX if kind is ItemPolicy else REPORT_BYTES_MAX
    if len(data) > limit:
        raise MalformedRecord(path, f"{len(data)} bytes, more than {limit}")
    try:
        record = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        raise MalformedRecord(path, str(bad)) from None
    if (flaw := _flaw(record)) is not None:
        raise MalformedRecord(path, flaw)
    return record


def _flaw(record: MasterRecord | AgentReport | ItemPolicy) -> str | None:
    match record:
        case MasterRecord() if record.name and not is_name(record.name):
            return "no valid name"
        case AgentReport() if not record.capacity > 0 or any(rate < 0 for rate in record.rates.values()):
            return "a capacity or a rate is negative"
        case AgentReport() if not all(map(is_name, record.unreachable)):
            return "no valid name"
        case ItemPolicy() if record.epoch < 1:
            return "the epoch is less than 1"
        case ItemPolicy() if any(
            not is_name(place.primary) or (place.mirror and not is_name(place.mirror)) or place.mirror == place.primary
            for place in record.places.values()
        ):
            return "an item is not on one or two brokers"
        case _:
            return None


def decode_plan(path: str, data: bytes) -> DomainPlan:
    """MalformedRecord."""
    try:
        return unpack_plan(data)
    except BadDomainPlan as bad:
        raise MalformedRecord(path, str(bad)) from None
