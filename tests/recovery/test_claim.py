"""A claim: from the decision to serve to serving, answer by answer."""

import pytest

from overlane.coordination.contract import Answer, Answered, Done, Found, Reason, Rejected, Unknown, Znode
from overlane.core.units import MS
from overlane.recovery.claim import Claim, ClaimState
from overlane.recovery.events import Position, Stored, Write
from overlane.recovery.register import Register
from overlane.recovery.replica_set import Copy, ReplicaSet, encode_set
from overlane.recovery.replication.own_storage import OwnStorage

A, B, C = Copy(1, "a"), Copy(2, "b"), Copy(3, "c")
BEFORE = ReplicaSet(4, 1, (A, B, C))
TARGET = ReplicaSet(5, 2, (B, C))


def found(value: ReplicaSet, version: int) -> Found:
    return Found(Znode(encode_set(value), version, created=5))


class Desk:
    """The claim of storage 2, which has accepted more than is on its disk."""

    def __init__(self) -> None:
        self.register = Register("seattle", retry=200 * MS)
        self.register.read()
        self.register.answered(Answered(1, found(BEFORE, 7)), 0)
        self.own = OwnStorage(Stored(2, 4, Position(4, 30)))
        self.own.write(Stored(2, 4, Position(4, 31)))
        self.claim = Claim("b", self.own, self.register)
        self.claim.start(0)

    def state(self) -> ClaimState:
        return self.claim.state

    def answer(self, request: int, answer: Answer) -> list[object]:
        self.register.answered(Answered(request, answer), 0)
        return list(self.claim.set_changed())


def test_it_serves_when_the_new_epoch_is_on_disk_behind_all_that_was_accepted() -> None:
    desk = Desk()
    assert desk.claim.target == TARGET
    assert desk.answer(2, Done((8,))) == [Write(2, (), Stored(2, 5, Position(5, 31)))]
    desk.own.confirm(1)
    desk.claim.committed()
    assert desk.state() is ClaimState.WRITING
    desk.own.confirm(2)
    desk.claim.committed()
    assert desk.state() is ClaimState.WON
    assert desk.claim.base == Position(4, 31)


def test_it_fails_when_another_was_first() -> None:
    desk = Desk()
    assert desk.answer(2, Rejected(0, Reason.VERSION)) == []
    assert desk.state() is ClaimState.FAILED


def test_it_goes_on_while_the_outcome_is_unknown() -> None:
    desk = Desk()
    desk.answer(2, Unknown())
    desk.answer(3, found(BEFORE, 7))
    assert desk.state() is ClaimState.ASKING
    desk.register.tick(200 * MS)
    assert desk.answer(4, Done((8,))) != []
    assert desk.state() is ClaimState.WRITING


def test_reading_its_target_does_not_win_it() -> None:
    # A former life of the process may have written it, and have used the epoch.
    desk = Desk()
    desk.answer(2, Unknown())
    assert desk.answer(3, found(TARGET, 8)) == []
    assert desk.state() is ClaimState.FAILED


def test_a_storage_that_is_not_in_sync_has_no_claim() -> None:
    desk = Desk()
    desk.answer(2, Rejected(0, Reason.VERSION))
    with pytest.raises(ValueError, match="not in sync"):
        Claim("d", OwnStorage(Stored(9)), desk.register)
