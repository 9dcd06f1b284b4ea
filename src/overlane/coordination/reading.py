"""What ZooKeeper says of an overlay, read once: its brokers, their reports, the leader, the assignment."""

from dataclasses import dataclass, field

from overlane.coordination.client import CoordinationClient
from overlane.coordination.contract import Znode
from overlane.coordination.records import (
    ASSIGNMENTS,
    EDGES,
    LEADER,
    OTHERS,
    REPORTS,
    ROUTING,
    WANTED,
    Assigned,
    BrokerRecord,
    LeaderRecord,
    MalformedRecord,
    ReportRecord,
    WantedRecord,
    decode,
    decode_registration,
    decode_shard,
)


@dataclass(slots=True)
class Overview:
    brokers: dict[str, BrokerRecord] = field(default_factory=dict)
    reports: dict[str, ReportRecord] = field(default_factory=dict)
    leader: str | None = None
    wanted: WantedRecord | None = None
    assigned: dict[int, Assigned] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    """Znodes that say what they must not, with the reason."""


async def read_overview(session: CoordinationClient) -> Overview:
    """Unavailable."""
    found = Overview()
    domains = [f"{EDGES}/{domain}" for domain in await session.names(EDGES)]
    for folder in (ROUTING, OTHERS, *domains):
        await _read_registrations(session, folder, found)
    _read_reports(await session.children(REPORTS), found)
    for name, node in (await session.children(ASSIGNMENTS)).items():
        try:
            found.assigned |= decode_shard(f"{ASSIGNMENTS}/{name}", node.data).bundles
        except MalformedRecord as error:
            found.ignored.append(str(error))
    if (leader := await session.read(LEADER)) is not None:
        try:
            found.leader = decode(LEADER, leader.data, LeaderRecord).name
        except MalformedRecord as error:
            found.ignored.append(str(error))
    if (wanted := await session.read(WANTED)) is not None:
        try:
            found.wanted = decode(WANTED, wanted.data, WantedRecord)
        except MalformedRecord as error:
            found.ignored.append(str(error))
    return found


async def _read_registrations(session: CoordinationClient, folder: str, into: Overview) -> None:
    for name, node in (await session.children(folder)).items():
        try:
            into.brokers[name] = decode_registration(f"{folder}/{name}", node.data)
        except MalformedRecord as error:
            into.ignored.append(str(error))


def _read_reports(nodes: dict[str, Znode], into: Overview) -> None:
    for name, node in nodes.items():
        try:
            into.reports[name] = decode(f"{REPORTS}/{name}", node.data, ReportRecord)
        except MalformedRecord as error:
            into.ignored.append(str(error))
