"""A broker's part in the coordination: its registration, the other members, and the election of a leader. Pure.

Inputs are events of the service; outputs are requests and notices. Known data is kept if the service fails: a broker
without ZooKeeper continues with the last members and assignments.

  - One ephemeral node tells that the broker is there (`registration`). It knows those that concern it: an edge the
    routing brokers, the edges of its domain, and others that it asks for by name (`know`); others all.
  - Whoever may lead stands for election (`election`). The number of the creation of `/leader` is the leader's epoch.
  - A report, and who cannot be reached, is written at once (`reporting`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from overlane.coordination.contract import (
    Answer,
    Answered,
    Connected,
    Create,
    Delete,
    Done,
    Event,
    Missing,
    Operation,
    Read,
    Reason,
    Rejected,
    Replace,
    Request,
    Suspended,
    Transaction,
    Znode,
)
from overlane.coordination.election import Election, Standing
from overlane.coordination.follower import Follower, Numbered
from overlane.coordination.leader import Leader
from overlane.coordination.leading import LeaderKnowledge, Leading
from overlane.coordination.records import (
    ASSIGNMENTS,
    CONFIG,
    EDGES,
    EPOCH,
    LEADER,
    NAMES,
    OTHERS,
    REPORTS,
    ROUTING,
    SUSPECTS,
    WANTED,
    Assigned,
    BrokerRecord,
    ConfigRecord,
    EpochRecord,
    LeaderRecord,
    MalformedRecord,
    NameRecord,
    ReportRecord,
    ShardRecord,
    SuspectsRecord,
    WantedRecord,
    decode,
    decode_registration,
    decode_shard,
    encode,
    folder_of,
)
from overlane.coordination.registration import Registration, Taken
from overlane.coordination.reporting import Reporting
from overlane.core.units import NEVER, SECOND, Nanos

PARENTS = (REPORTS, SUSPECTS, ASSIGNMENTS, EPOCH)
"""Made where they do not exist, as are the folders of registrations."""
TRY_AGAIN: Nanos = 1 * SECOND
SOUGHT_MAX = 256


@dataclass(frozen=True, slots=True)
class MembersChanged:
    members: Mapping[str, BrokerRecord]
    """All that are known, as they are now: it changes with them."""


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
class WantedChanged:
    """Told only to those that may lead."""

    wanted: WantedRecord


@dataclass(frozen=True, slots=True)
class NameTaken:
    """Another broker with another store is registered under this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A znode that no broker would have written; what it said before counts."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """The service does not let this broker read or write here: its user is not that of the overlay."""

    path: str


Notice = (
    NotAllowed
    | MembersChanged
    | LeaderChanged
    | AssignmentChanged
    | ConfigChanged
    | WantedChanged
    | NameTaken
    | Ignored
)


class Participant:
    def __init__(
        self, name: str, record: BrokerRecord, leader: Leader | None = None, unix_s: Callable[[], int] = lambda: 0
    ) -> None:
        """`leader`: its decisions, if it may lead. `unix_s` tells the time for people."""
        self.name = name
        self._registration = Registration(name, record)
        self._election = None if leader is None else Election(name)
        self.requests = Numbered()
        own = (self._registration.name_path, self._registration.path)
        nodes, parents = ((EPOCH, WANTED), (SUSPECTS,)) if leader is not None else ((), ())
        known, folders = ((ROUTING, folder_of(record)), ()) if record.role == "edge" else ((ROUTING, OTHERS), (EDGES,))
        self.follower = Follower(
            self.requests, (LEADER, CONFIG, *own, *nodes), (*known, ASSIGNMENTS, *parents), folders
        )
        self.leading = None if leader is None else Leading(self.requests, self.follower, leader, unix_s)
        self.session = 0
        self._is_connected = False
        self._parents = (*PARENTS, *self._registration.folders())
        """Made in this order where the last one does not exist, or a write finds that one is missing. Nearly always
        they exist, and a read costs the service much less than as many writes that it has to agree upon."""
        self._looking_for_parents = 0
        """The request that tells whether they exist; nothing is written before that."""
        self._writes: dict[int, str] = {}
        """Requests under way that write, by the path that they are about."""
        self._quiet_until: dict[str, Nanos] = {}
        """Paths at which a write failed lately."""
        self._reporting = Reporting()
        self._is_taken = False
        self.continued_at: Nanos | None = None
        """When it has replaced a registration of its former life, or of another host: one that had not ended."""
        self.members: dict[str, BrokerRecord] = {}
        self._registered: dict[str, dict[str, tuple[int, BrokerRecord]]] = {}
        """By name, the registrations that there are: by path, when each was created, and what it says."""
        self._sought: set[str] = set()
        """Brokers that are looked for by their names."""
        self.leader: LeaderChanged = LeaderChanged(None, 0)
        self._shards: dict[str, ShardRecord] = {}
        self._assigned: Mapping[int, Assigned] | None = None
        self._has_new_shards = False
        """Of which nobody has been told."""
        self._flawed: set[str] = set()
        """Shards whose node is no shard; what it said before counts."""
        self._suspects: dict[str, frozenset[str]] = {}
        self.wanted: WantedRecord | None = None
        self.config: ConfigRecord | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads, as far as it knows: what a leader writes is checked by the service."""
        node = self.follower.found.get(LEADER)
        return self._is_connected and node is not None and node.owner == self.session

    @property
    def assigned(self) -> Mapping[int, Assigned]:
        if self._assigned is None:
            self._assigned = {bundle: one for shard in self._shards.values() for bundle, one in shard.bundles.items()}
        return self._assigned

    def register(self, record: BrokerRecord) -> None:
        """It is reached elsewhere now. ValueError for another role or domain, which take another participant."""
        if folder_of(record) != folder_of(self._registration.record):
            raise ValueError("the role or the domain of a broker that runs has changed")
        self._registration.record = record

    def report(self, report: ReportRecord) -> None:
        self._reporting.tell(f"{REPORTS}/{self.name}", encode(report))

    def suspect(self, unreachable: tuple[str, ...]) -> None:
        """These routing brokers cannot be reached; the others can, or need not be."""
        path = f"{SUSPECTS}/{self.name}"
        if unreachable or self._reporting.content(path) is not None:
            self._reporting.tell(path, encode(SuspectsRecord(unreachable)))

    def know(self, names: Iterable[str], at_most: int = SOUGHT_MAX) -> None:
        """Edges of other domains that are to be known from now on; more than so many are not."""
        for name in names:
            if name not in self.members and name not in self._sought and len(self._sought) < at_most:
                self._sought.add(name)
                self.follower.follow(f"{NAMES}/{name}")

    def next_deadline(self) -> Nanos:
        if not self._is_connected:
            return NEVER
        own = [self._reporting.next_deadline(self._is_free)]
        leading = [] if self.leading is None else [self.leading.next_deadline()]
        election = [] if self._election is None or not self._can_stand() else [self._election.next_deadline()]
        return min([*own, *leading, *election, *self._quiet_until.values()])

    def handle(self, event: Event, now: Nanos) -> list[Notice]:
        notices: list[Notice] = []
        changed: list[str] = []
        match event:
            case Connected(session):
                self._is_connected, self.session = True, session
                self._quiet_until.clear()
                self.follower.handle(event)
                self._looking_for_parents = self.requests.ask(Read(self._parents[-1]))
            case Suspended():
                self._is_connected, self._looking_for_parents = False, 0
                self.follower.handle(event)
                if self.leading is not None:
                    self.leading.handle(event)
            case Answered(number, answer):
                request = self.requests.answered(number)
                if number == self._looking_for_parents:
                    self._looking_for_parents = 0
                    if isinstance(answer, Missing):
                        self._make_parents()
                elif self._lacks_parent(request, answer):
                    self._make_parents()
                if isinstance(answer, Rejected) and answer.reason is Reason.REFUSED and request is not None:
                    notices.append(NotAllowed(_path_of(request)))
                if number in self._writes:
                    self._written(self._writes.pop(number), request, answer, now)
                elif request is not None:
                    changed = self.follower.answered(event, request)
                    if self.leading is not None:
                        flawed = self.leading.answered(event, request, now)
                        notices += [Ignored(error.path, error.reason) for error in flawed]
            case _:
                changed = self.follower.handle(event)
                if self.leading is not None:
                    self.leading.handle(event)
        for path in changed:
            self._take(path, notices)
        # The shards of one decision are read one by one: what they say together is told, and once.
        if self._has_new_shards and not (self._is_connected and self.follower.is_reading(ASSIGNMENTS)):
            self._has_new_shards = False
            notices.append(AssignmentChanged(self.assigned))
        self.tick(now, notices)
        return notices

    def tick(self, now: Nanos, notices: list[Notice] | None = None) -> list[Notice]:
        """Do what is due: register, stand for election, report."""
        notices = [] if notices is None else notices
        if not self._is_connected:
            return notices
        self._quiet_until = {path: until for path, until in self._quiet_until.items() if until > now}
        self._register(notices, now)
        self._stand_for_election(now)
        for path, data in self._reporting.due(now, self._is_free):
            self._write(path, Replace(path, data))
        if self.leading is not None:
            is_standby = self._election is not None and self._election.is_standby(self._standing)
            self.leading.stand_by(self.session if self.is_leader or is_standby else 0)
            self.leading.led(self.session if self.is_leader else 0)
            if now >= self.leading.next_deadline():
                flawed = frozenset(self._flawed)
                self.leading.tick(
                    LeaderKnowledge(self.members, self._suspects, self.assigned, self.wanted, flawed), now
                )
        return notices

    def _stand_for_election(self, now: Nanos) -> None:
        if self._election is None or not self._can_stand():
            return
        operations = self._election.due(self.session, self._standing, now)
        if operations:
            self._write(LEADER, *operations)

    def _can_stand(self) -> bool:
        return self._is_free(LEADER) and self.follower.has_read(LEADER)

    @property
    def _standing(self) -> Standing:
        return Standing(self.follower, self.leader.name, self._registration.path)

    # Writing

    def _is_free(self, path: str) -> bool:
        if self._looking_for_parents:
            return False
        return path not in self._writes.values() and path not in self._quiet_until

    def _make_parents(self) -> None:
        for parent in self._parents:
            self._write(parent, Create(parent, encode(EpochRecord()) if parent == EPOCH else b""))
        # A list of the children of a node that does not exist leaves no watch: read everything again behind it.
        again = Connected(self.session, is_new=False)
        self.follower.handle(again)
        if self.leading is not None:
            self.leading.handle(again)

    def _write(self, path: str, *operations: Operation) -> None:
        self._writes[self.requests.ask(Transaction(operations))] = path

    def _lacks_parent(self, request: Request | None, answer: Answer) -> bool:
        """Whether a write has failed since somebody has deleted a parent."""
        if not isinstance(request, Transaction) or not isinstance(answer, Rejected):
            return False
        operation = request.operations[answer.index]
        is_lacking = isinstance(operation, Create) or operation.path in self._parents
        is_being_made = any(path in self._parents for path in self._writes.values())
        return answer.reason is Reason.MISSING and is_lacking and not is_being_made

    def _written(self, path: str, request: Request | None, answer: Answer, now: Nanos) -> None:
        told = self._reporting.content(path)
        if told is not None and answer == Rejected(0, Reason.MISSING) and not _is_creating(request):
            self._write(path, Create(path, told))
            return
        if not isinstance(answer, Done):
            self._reporting.failed(path)
            if path not in self._parents:
                self._quiet_until[path] = now + TRY_AGAIN
        # Its watch may have told before this answer, or may be lost: see what became of it.
        if self._is_connected and path == self._registration.path:
            for own in (path, self._registration.name_path):
                self.follower.look_again(Read(own))
        if self._is_connected and path == LEADER:
            self.follower.look_again(Read(path))
            if self._election is not None:
                self.follower.look_again(Read(EPOCH))

    def _register(self, notices: list[Notice], now: Nanos) -> None:
        own, follower = self._registration, self.follower
        if not self._is_free(own.path) or not follower.has_read(own.name_path) or not follower.has_read(own.path):
            return
        claimed = own.claimed_path(follower.found)
        if not follower.has_read(claimed):
            follower.follow(claimed)
            return
        match own.due(follower.found, self.session):
            case Taken():
                if not self._is_taken:
                    self._is_taken = True
                    notices.append(NameTaken(self.name))
            case operations:
                self._is_taken = False
                if any(isinstance(one, Delete) for one in operations):
                    self.continued_at = now
                if operations:
                    self._write(own.path, *operations)

    # Reading

    def _take(self, path: str, notices: list[Notice]) -> None:
        node = self.follower.found.get(path)
        if self.leading is not None:
            self.leading.changed()
        try:
            match path.split("/")[1:]:
                case ["brokers", *_, name]:
                    self._take_member(name, path, node)
                    self._count_doubts()
                    notices.append(MembersChanged(self.members))
                case ["names", name] if name in self._sought and node is not None:
                    registered = decode(path, node.data, NameRecord).path
                    if registered.startswith(f"{EDGES}/") and not self.follower.has_read(registered):
                        self.follower.follow(registered)
                case ["leader"]:
                    leader = None if node is None else decode(path, node.data, LeaderRecord).name
                    self.leader = LeaderChanged(leader, 0 if node is None else node.created)
                    notices.append(self.leader)
                case ["assignments", _]:
                    self._take_shard(path, node)
                    self._has_new_shards = True
                case ["suspects", name]:
                    told = () if node is None else decode(path, node.data, SuspectsRecord).unreachable
                    self._suspects[name] = frozenset(told)
                    self._count_doubts()
                case ["wanted"] if node is not None:
                    self.wanted = decode(path, node.data, WantedRecord)
                    notices.append(WantedChanged(self.wanted))
                case ["config"] if node is not None:
                    self.config = decode(path, node.data, ConfigRecord)
                    notices.append(ConfigChanged(self.config))
                case _:
                    pass
        except MalformedRecord as error:
            notices.append(Ignored(error.path, error.reason))

    def _count_doubts(self) -> None:
        if self._election is not None:
            self._election.doubts_changed(self.members, self._suspects)

    def _take_member(self, name: str, path: str, node: Znode | None) -> None:
        """Of two with one name the first counts. There are two for a moment at most, unless somebody else wrote one."""
        known = self._registered.setdefault(name, {})
        if node is not None:
            known[path] = node.created, decode_registration(path, node.data)
        else:
            known.pop(path, None)
        if known:
            self.members[name] = min(known.values(), key=lambda one: one[0])[1]
        else:
            del self._registered[name]
            self.members.pop(name, None)

    def _take_shard(self, path: str, node: Znode | None) -> None:
        """A shard that is deleted counts on: assignments end only by being replaced."""
        self._flawed.discard(path)
        self._assigned = None
        if node is None:
            return
        try:
            self._shards[path] = decode_shard(path, node.data)
        except MalformedRecord:
            self._flawed.add(path)
            raise


def _is_creating(request: Request | None) -> bool:
    return isinstance(request, Transaction) and isinstance(request.operations[0], Create)


def _path_of(request: Request) -> str:
    return request.operations[0].path if isinstance(request, Transaction) else request.path
