"""Leading: the leader reads the reports, decides (`leader`), and writes what it has decided. Pure.

The leader and its few standbys read the reports: a new leader that first had to read them would decide later, while the
topics of a lost broker wait. Every write of a leader is one transaction with a check of `/epoch`, whose version changes
with the leader: so a former leader cannot write any more. After a write it decides again only when it has read what it
wrote.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from overlane.coordination.contract import (
    Answer,
    Answered,
    Check,
    Connected,
    Create,
    Done,
    Event,
    Operation,
    Read,
    Replace,
    Request,
    Suspended,
    Transaction,
    Znode,
)
from overlane.coordination.follower import Follower, Numbered
from overlane.coordination.leader import Decision, Leader, Seen
from overlane.coordination.records import (
    EPOCH,
    REPORTS,
    ROUTING,
    WANTED,
    Assigned,
    BrokerRecord,
    EpochRecord,
    MalformedRecord,
    ReportRecord,
    ShardRecord,
    WantedRecord,
    decode,
    encode,
    shard_path,
    unpack,
)
from overlane.coordination.uses import Uses
from overlane.core.bundles import NONE
from overlane.core.units import MS, NEVER, Nanos

DECIDE_EVERY: Nanos = 20 * MS
TRY_AGAIN: Nanos = 200 * MS
"""After a transaction that failed."""


@dataclass(frozen=True, slots=True)
class LeaderKnowledge:
    """What the participant has read, besides the reports."""

    members: Mapping[str, BrokerRecord]
    suspects: Mapping[str, frozenset[str]]
    assigned: Mapping[int, Assigned]
    wanted: WantedRecord | None
    flawed: frozenset[str] = frozenset()
    """Shards that somebody else has overwritten with what is no shard."""


class Leading:
    def __init__(self, requests: Numbered, follower: Follower, leader: Leader, unix_s: Callable[[], int]) -> None:
        """`follower` is the participant's: it follows the shards."""
        self.leader = leader
        self._requests = requests
        self._follower = follower
        self._reports = Follower(requests, (), (REPORTS,))
        self._unix_s = unix_s
        self._session = 0
        """In which it leads; 0: it does not."""
        self._is_following = False
        """Whether it reads reports."""
        self._uses = Uses()
        self.reports: dict[str, ReportRecord] = {}
        self._writing: tuple[int, tuple[str, ...]] | None = None
        self._is_suspecting = False
        """Whether anybody cannot be reached: then it counts who uses it."""
        self._next: Nanos = 0
        self._is_dirty = True
        self.transactions = 0

    def stand_by(self, session: int) -> None:
        """The broker may have to lead soon in this session, or does already: read reports. 0: it has not to."""
        if (session != 0) == self._is_following:
            return
        self._is_following = session != 0
        if session:
            self._reports.handle(Connected(session, is_new=False))

    def led(self, session: int) -> None:
        """The broker leads in this session; 0: it does not."""
        if session == self._session:
            return
        self._session, self._writing, self._is_dirty = session, None, True

    def report_version(self, name: str) -> int:
        """How often the report of a broker has been replaced."""
        return self._reports.found[f"{REPORTS}/{name}"].version

    def changed(self) -> None:
        """Something that the participant has read."""
        self._is_dirty = True

    def next_deadline(self) -> Nanos:
        if not self._may_decide():
            return NEVER  # an answer will say more, and whoever takes it asks again
        return max(self._next, 0 if self._is_dirty else self.leader.next_deadline())

    def handle(self, event: Event) -> None:
        if isinstance(event, Suspended):
            self.led(0)
            self._is_following = False  # should it lead on after that, it reads all reports again
            self._reports.handle(event)  # or else it would ask again and again for what nobody can answer
        elif self._is_following:
            self._reports.handle(event)

    def answered(self, event: Answered, request: Request, now: Nanos) -> list[MalformedRecord]:
        """An answer to a request of its own; others are ignored. Reports that say what they must not."""
        if self._writing is not None and event.request == self._writing[0]:
            self._outcome(self._writing[1], event.answer, now)
            return []
        found = []
        for path in self._reports.answered(event, request):
            try:
                self._take(path.rpartition("/")[2], path, self._reports.found.get(path))
            except MalformedRecord as error:
                found.append(error)
        return found

    def tick(self, known: LeaderKnowledge, now: Nanos) -> None:
        """Decide, if it is time to."""
        if now < self.next_deadline() or not self._may_decide():
            return
        self._next, self._is_dirty = now + DECIDE_EVERY, False
        self._is_suspecting = any(known.suspects.values())
        lives = {name: node.created for name, node in self._follower.children(ROUTING).items()}
        seen = Seen(known.members, lives, self.reports, self._uses, known.suspects, known.assigned, known.wanted)
        decision = self.leader.decide(seen, now, self._unix_s())
        found = self._follower.found
        lost = {path for bundle in known.assigned if (path := shard_path(bundle)) not in found or path in known.flawed}
        if decision or lost:
            self._write(decision, known.assigned, lost)

    def _may_decide(self) -> bool:
        return (
            self._session != 0
            and self._is_following
            and self._writing is None
            and self._epoch_version() is not None
            and self._follower.is_complete
            and self._reports.is_complete
        )

    def _epoch_version(self) -> int | None:
        """The version of `/epoch` that this session has made: another's would let it write as if it were that one."""
        node = self._follower.found.get(EPOCH)
        try:
            is_own = node is not None and decode(EPOCH, node.data, EpochRecord).session == self._session
        except MalformedRecord:
            return None
        return node.version if node is not None and is_own else None

    def _take(self, name: str, path: str, node: Znode | None) -> None:
        if node is None:
            self._is_dirty = True
            self.reports.pop(name, None)
            self._uses.replace(name, NONE)
            return
        report = decode(path, node.data, ReportRecord)
        self._is_dirty = self._is_dirty or self._is_urgent(self.reports.get(name), report)
        self.reports[name] = report
        self._uses.replace(name, unpack(report.wants) | unpack(report.offers))

    def _is_urgent(self, before: ReportRecord | None, report: ReportRecord) -> bool:
        """Whether it must be decided upon at once. Loads, and bundles that are used now, wait for the next round: every
        bundle has its broker already, and a decision looks at all brokers."""
        is_placed_by_use = self.leader.policy.is_by_place or self._is_suspecting
        return before is None or is_placed_by_use or before.is_leaving != report.is_leaving

    # Writing

    def _write(self, decision: Decision, assigned: Mapping[int, Assigned], lost: set[str]) -> None:
        """`lost`: shards that somebody has deleted or overwritten."""
        epoch = self._epoch_version()
        assert epoch is not None
        changed = {shard_path(bundle) for bundle in decision.assigned}
        shards: dict[str, dict[int, Assigned]] = {path: {} for path in changed | lost}
        for bundle, one in sorted({**assigned, **decision.assigned}.items()):
            if (path := shard_path(bundle)) in shards:
                shards[path][bundle] = one
        content = {path: encode(ShardRecord(epoch, bundles)) for path, bundles in sorted(shards.items())}
        if decision.wanted is not None:
            content[WANTED] = encode(decision.wanted)
        operations = [Check(EPOCH, epoch), *(self._put(path, data) for path, data in content.items())]
        self.transactions += 1
        self._writing = self._requests.ask(Transaction(tuple(operations))), tuple(content)

    def _put(self, path: str, data: bytes) -> Operation:
        node = self._follower.found.get(path)
        return Create(path, data) if node is None else Replace(path, data, node.version)

    def _outcome(self, paths: tuple[str, ...], answer: Answer, now: Nanos) -> None:
        self._writing = None
        if not isinstance(answer, Done):
            self._next = now + TRY_AGAIN
            self._follower.look_again(Read(EPOCH))
        self._is_dirty = True
        for path in paths:
            self._follower.look_again(Read(path))
