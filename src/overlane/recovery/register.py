"""The register: what the znode of a replica set may contain, as far as this host knows.

    known      the latest version that was read or written
    targets    of every compare-and-set on that version that is not known to have failed
    possible   known and targets: the znode contains one of them, until a later version is seen

An answer that is lost (`Unknown`) leaves its target possible. A read that shows the version of `known` proves nothing:
the request may still be on its way. Only a later version decides. So an unknown compare-and-set is asked again, on the
same version, until one answer comes: at most one of the two can succeed, and both have the same target. Reads may be
stale: what is older than `known` is ignored.
"""

from overlane.coordination.contract import (
    Answer,
    Answered,
    Create,
    Done,
    Found,
    Missing,
    Read,
    Rejected,
    Replace,
    Transaction,
    Unknown,
)
from overlane.coordination.records import MalformedRecord
from overlane.core.units import NEVER, Nanos
from overlane.recovery.events import Alarm, AlarmKind, Ask, Effect
from overlane.recovery.replica_set import (
    KnownReplicaSet,
    ReplicaSet,
    decode_set,
    encode_set,
    replica_path,
)


class Register:
    def __init__(self, broker: str, retry: Nanos) -> None:
        self.known: KnownReplicaSet | None = None
        self.confirmed: KnownReplicaSet | None = None
        """The latest version that a compare-and-set of this register was confirmed to have made."""
        self.is_missing = False
        """Whether the latest answer was that there is no znode."""
        self.due: Nanos = NEVER
        """When something that was not answered has to be asked again."""
        self._path = replica_path(broker)
        self._retry = retry
        self._next = 1
        self._targets: dict[int, ReplicaSet] = {}
        """By request: not known to have failed."""
        self._unanswered: set[int] = set()
        """Requests to change the znode whose answer may still come."""
        self._read: int | None = None
        self._is_outdated = True
        """Whether the znode is to be read, or read again behind the read that is under way."""

    @property
    def possible(self) -> list[ReplicaSet]:
        """None of them where nothing is known."""
        if self.known is None:
            return []
        return [self.known.value, *self._targets.values()]

    @property
    def is_settled(self) -> bool:
        """Whether `known` is the only possible set."""
        return not self._targets

    @property
    def is_reading(self) -> bool:
        """Whether more may be known soon."""
        return self._read is not None

    # Asking

    def read(self) -> list[Effect]:
        self._is_outdated = True
        if self._read is not None:
            return []  # it may have been answered before whatever is the reason for this one
        self._read = self._number()
        self._is_outdated = False
        return [Ask(self._read, Read(self._path))]

    def propose(self, target: ReplicaSet, now: Nanos) -> list[Effect]:
        """Compare-and-set on the version that is known. One target at a time: others wait until it is decided."""
        if self.known is None:
            raise ValueError("a compare-and-set needs a known version")
        if any(one != target for one in self._targets.values()):
            raise ValueError("the outcome of another compare-and-set is unknown")
        number = self._number()
        self._targets[number] = target
        self._unanswered.add(number)
        self.due = min(self.due, now + self._retry)
        return [Ask(number, Transaction((Replace(self._path, encode_set(target), self.known.version),)))]

    def create(self, value: ReplicaSet, now: Nanos) -> list[Effect]:
        """Where there is no znode. What it contains is read afterwards."""
        number = self._number()
        self._unanswered.add(number)
        self.due = min(self.due, now + self._retry)
        return [Ask(number, Transaction((Create(self._path, encode_set(value)),)))]

    def tick(self, now: Nanos) -> list[Effect]:
        """Ask again for what is unknown."""
        if now < self.due:
            return []
        self.due = NEVER
        # Every request is answered once, if only with Unknown; what still waits for its answer is left alone.
        if self._targets and not self._unanswered:
            return self.propose(next(iter(self._targets.values())), now)
        if self._targets:
            self.due = now + self._retry
        return self.read() if self._is_outdated or self._targets else []

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    # Answers

    def answered(self, event: Answered, now: Nanos) -> list[Effect]:
        if event.request == self._read:
            self._read = None
            return self._was_read(event.answer, now)
        if event.request not in self._unanswered:
            return []
        self._unanswered.discard(event.request)
        target = self._targets.get(event.request)
        match event.answer:
            case Done(versions) if target is not None and versions and versions[0] is not None:
                if self.known is not None:
                    self.confirmed = KnownReplicaSet((self.known.stamp[0], versions[0]), target)
                    self._learn(self.confirmed)
                return []
            case Rejected():
                # The version is another: this one has failed for good, and one that is unknown may have succeeded.
                self._targets.pop(event.request, None)
                return self.read()
            case Unknown():
                self.due = min(self.due, now + self._retry)
                return self.read()
            case _:
                return self.read()

    def _was_read(self, answer: Answer, now: Nanos) -> list[Effect]:
        match answer:
            case Found(node):
                self.is_missing = False
                try:
                    value = decode_set(self._path, node.data)
                except MalformedRecord as error:
                    return [Alarm(AlarmKind.MALFORMED_SET, str(error))]  # until its watch says that it has changed
                self._learn(KnownReplicaSet((node.created, node.version), value))
            case Missing():
                self.is_missing = True
            case _:
                self._is_outdated = True
                self.due = min(self.due, now + self._retry)
                return []
        return self.read() if self._is_outdated else []

    def _learn(self, known: KnownReplicaSet) -> None:
        if self.known is None or known.stamp > self.known.stamp:
            self.known = known
            # They were conditional on an earlier version: they have happened before this one, or never will.
            self._targets.clear()
