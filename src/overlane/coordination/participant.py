"""A broker's part in the coordination: it registers itself, knows the others, and votes for a leader. Pure.

Events of the service go in; requests and notices come out. Whatever happens to the service, what was known stays known:
a broker that has lost ZooKeeper goes on with the members and assignments of before.

  - One ephemeral node tells that the broker is there. If it is gone, or is that of an earlier session of the same
    store, it is made anew; if it is that of another store, two brokers have one name, and the one that was first stays.
  - Whoever may lead creates `/leader` where there is none; the service lets one of them succeed. The number of the
    node's creation is the leader's epoch.
  - A report is written at once, and then at most every 50 ms, with what is latest.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from overlane.coordination.contract import (
    Answer,
    Answered,
    Connected,
    Create,
    Delete,
    Done,
    Event,
    Operation,
    Read,
    Reason,
    Rejected,
    Replace,
    Suspended,
    Transaction,
    Znode,
)
from overlane.coordination.follower import Follower, Numbered
from overlane.coordination.records import (
    ASSIGNMENTS,
    BROKERS,
    CONFIG,
    LEADER,
    REPORTS,
    Assigned,
    BrokerRecord,
    ConfigRecord,
    LeaderRecord,
    MalformedRecord,
    ReportRecord,
    ShardRecord,
    decode,
    encode,
)
from overlane.core.units import MS, NEVER, SECOND, Nanos

PARENTS = (BROKERS, REPORTS, ASSIGNMENTS)
REPORT_EVERY: Nanos = 50 * MS
TRY_AGAIN: Nanos = 1 * SECOND


@dataclass(frozen=True, slots=True)
class MembersChanged:
    members: Mapping[str, BrokerRecord]


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    name: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    assigned: Mapping[int, Assigned]


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    config: ConfigRecord


@dataclass(frozen=True, slots=True)
class NameTaken:
    """Another broker with another store is registered under this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A znode that no broker would have written; what it said before counts."""

    path: str
    reason: str


Notice = MembersChanged | LeaderChanged | AssignmentChanged | ConfigChanged | NameTaken | Ignored


class Participant:
    def __init__(self, name: str, record: BrokerRecord, *, may_lead: bool) -> None:
        self.name = name
        self._record = record
        self._may_lead = may_lead
        self.requests = Numbered()
        self.follower = Follower(self.requests, (LEADER, CONFIG, ASSIGNMENTS), (BROKERS, ASSIGNMENTS))
        self.session = 0
        self._is_connected = False
        self._own = f"{BROKERS}/{name}"
        self._writes: dict[int, str] = {}
        """Requests under way that write, by the path that they are about."""
        self._quiet_until: dict[str, Nanos] = {}
        """Paths at which a write failed lately."""
        self._report: bytes | None = None
        self._is_reported = True
        self._reported_at: Nanos = -NEVER
        self._is_taken = False
        self.members: dict[str, BrokerRecord] = {}
        self.leader: LeaderChanged = LeaderChanged(None, 0)
        self._shards: dict[str, ShardRecord] = {}
        self.config: ConfigRecord | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads, as far as it knows: what a leader writes is checked by the service."""
        node = self.follower.found.get(LEADER)
        return self._is_connected and node is not None and node.owner == self.session

    @property
    def assigned(self) -> dict[int, Assigned]:
        return {bundle: one for shard in self._shards.values() for bundle, one in shard.bundles.items()}

    def register(self, record: BrokerRecord) -> None:
        """It is reached elsewhere now, or has another role."""
        self._record = record

    def report(self, report: ReportRecord) -> None:
        data = encode(report)
        if data != self._report:
            self._report, self._is_reported = data, False

    def next_deadline(self) -> Nanos:
        if not self._is_connected:
            return NEVER
        report = NEVER if self._is_reported else self._reported_at + REPORT_EVERY
        return min([report, *self._quiet_until.values()])

    def handle(self, event: Event, now: Nanos) -> list[Notice]:
        notices: list[Notice] = []
        changed: list[str] = []
        match event:
            case Connected(session):
                self._is_connected, self.session = True, session
                self._quiet_until.clear()
                self.follower.handle(event)
                for parent in PARENTS:
                    self._write(parent, Create(parent))
            case Suspended():
                self._is_connected = False
                self.follower.handle(event)
            case Answered(number, answer):
                request = self.requests.answered(number)
                if number in self._writes:
                    self._written(self._writes.pop(number), answer, now)
                elif request is not None:
                    changed = self.follower.answered(event, request)
            case _:
                changed = self.follower.handle(event)
        for path in changed:
            self._take(path, notices)
        self.tick(now, notices)
        return notices

    def tick(self, now: Nanos, notices: list[Notice] | None = None) -> list[Notice]:
        """Do what is due: register, stand for election, report."""
        notices = [] if notices is None else notices
        if not self._is_connected:
            return notices
        self._quiet_until = {path: until for path, until in self._quiet_until.items() if until > now}
        if self.follower.is_current:
            self._register(notices)
            if self._may_lead and LEADER not in self.follower.found and self._is_free(LEADER):
                self._write(LEADER, Create(LEADER, encode(LeaderRecord(self.name)), is_ephemeral=True))
        path = f"{REPORTS}/{self.name}"
        if not self._is_reported and self._is_free(path) and now >= self._reported_at + REPORT_EVERY:
            assert self._report is not None
            self._write(path, Replace(path, self._report))
            self._is_reported, self._reported_at = True, now
        return notices

    # Writing

    def _is_free(self, path: str) -> bool:
        return path not in self._writes.values() and path not in self._quiet_until

    def _write(self, path: str, *operations: Operation) -> None:
        self._writes[self.requests.ask(Transaction(operations))] = path

    def _written(self, path: str, answer: Answer, now: Nanos) -> None:
        report = f"{REPORTS}/{self.name}"
        if path == report and answer == Rejected(0, Reason.MISSING) and self._report is not None:
            self._write(path, Create(path, self._report))
            return
        if not isinstance(answer, Done):
            self._is_reported = self._is_reported and path != report
            if path not in PARENTS:
                self._quiet_until[path] = now + TRY_AGAIN
        # Its watch may have told before this answer, or may be lost: see what became of it.
        if self._is_connected and path in (LEADER, self._own):
            self.follower.look_again(Read(path))

    def _register(self, notices: list[Notice]) -> None:
        if not self._is_free(self._own):
            return
        node, data = self.follower.found.get(self._own), encode(self._record)
        create = Create(self._own, data, is_ephemeral=True)
        if node is None:
            self._write(self._own, create)
        elif node.owner == self.session:
            self._is_taken = False
            if node.data != data:
                self._write(self._own, Replace(self._own, data, node.version))
        elif self._is_ours(node):
            self._write(self._own, Delete(self._own, node.version), create)
        elif not self._is_taken:
            self._is_taken = True
            notices.append(NameTaken(self.name))

    def _is_ours(self, node: Znode) -> bool:
        """Whether it is of an earlier session of this very store, or is no broker's at all."""
        try:
            return decode(self._own, node.data, BrokerRecord).instance == self._record.instance
        except MalformedRecord:
            return True

    # Reading

    def _take(self, path: str, notices: list[Notice]) -> None:
        node = self.follower.found.get(path)
        try:
            match path.split("/")[1:]:
                case ["brokers", name]:
                    self._take_member(name, path, node)
                    notices.append(MembersChanged(dict(self.members)))
                case ["leader"]:
                    leader = None if node is None else decode(path, node.data, LeaderRecord).name
                    self.leader = LeaderChanged(leader, 0 if node is None else node.created)
                    notices.append(self.leader)
                case ["assignments", _]:
                    self._take_shard(path, node)
                    notices.append(AssignmentChanged(self.assigned))
                case ["config"] if node is not None:
                    self.config = decode(path, node.data, ConfigRecord)
                    notices.append(ConfigChanged(self.config))
                case _:
                    pass
        except MalformedRecord as error:
            notices.append(Ignored(error.path, error.reason))

    def _take_member(self, name: str, path: str, node: Znode | None) -> None:
        if node is None:
            self.members.pop(name, None)
        else:
            self.members[name] = decode(path, node.data, BrokerRecord)

    def _take_shard(self, path: str, node: Znode | None) -> None:
        """A shard that is deleted counts on: assignments end only by being replaced."""
        if node is not None:
            self._shards[path] = decode(path, node.data, ShardRecord)
