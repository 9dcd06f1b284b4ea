"""The replica set as a value and in its znode, and the register that changes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.coordination.contract import (
    Answered,
    Create,
    Done,
    Found,
    Missing,
    Read,
    Reason,
    Rejected,
    Replace,
    Transaction,
    Unknown,
    Znode,
)
from overlane.coordination.records import MalformedRecord
from overlane.core.units import MS
from overlane.recovery.events import Alarm, Ask, Effect
from overlane.recovery.register import Register
from overlane.recovery.replica_set import (
    Copy,
    ReplicaSet,
    decode_set,
    encode_set,
    first_set,
)
from overlane.recovery.replication.durability import durable_through, is_mirrored, required

A, B, C = Copy(1, "a"), Copy(2, "b"), Copy(3, "c")
ALONE = ReplicaSet(2, 1, (A,))
PAIR = ReplicaSet(2, 1, (A, B))
PATH = "/replicas/seattle"


def test_which_sets_follow_from_one() -> None:
    assert first_set(A) == ReplicaSet(1, 1, (A,))
    assert ALONE.joined(B) == PAIR
    assert PAIR.without(2) == ALONE
    assert PAIR.joined(Copy(2, "d")) == ReplicaSet(2, 1, (A, Copy(2, "d")))
    assert ReplicaSet(2, 1, (A, B, C)).claimed(B) == ReplicaSet(3, 2, (B, C))
    assert PAIR.claimed(A) == ReplicaSet(3, 1, (A, B))
    with pytest.raises(ValueError, match="not in sync"):
        PAIR.claimed(C)
    with pytest.raises(ValueError, match="itself"):
        PAIR.without(1)


def test_it_is_read_as_it_was_written() -> None:
    assert decode_set(PATH, encode_set(PAIR)) == PAIR


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"epoch":0,"primary":1,"in_sync":[{"storage":1,"host":"a"}]}',
        b'{"epoch":1,"primary":2,"in_sync":[{"storage":1,"host":"a"}]}',
        b'{"epoch":1,"primary":1,"in_sync":[{"storage":1,"host":"a"},{"storage":1,"host":"b"}]}',
        b'{"epoch":1,"primary":0,"in_sync":[{"storage":0,"host":"a"}]}',
        b'{"epoch":1,"primary":1,"in_sync":[{"storage":1,"host":"a/b"}]}',
        encode_set(ReplicaSet(1, 1, tuple(Copy(one, "a") for one in range(1, 18)))),
        b" " * 5000,
    ],
)
def test_what_is_no_replica_set_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_set(PATH, data)


@given(st.binary(max_size=100))
def test_garbage_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_set(PATH, data)


# What is durable


@pytest.mark.parametrize(
    ("possible", "joining", "mirrors", "mirrored"),
    [
        ([ALONE], [], set(), False),
        ([PAIR], [], {2}, True),
        ([PAIR, ALONE], [], {2}, False),  # a drop whose outcome is unknown
        ([ALONE, PAIR], [], {2}, False),  # a join whose outcome is unknown
        ([PAIR, PAIR.joined(C)], [], {2, 3}, True),
        ([PAIR], [3], {2, 3}, True),
    ],
)
def test_a_batch_has_to_be_on_every_storage_of_every_possible_set(
    possible: list[ReplicaSet], joining: list[int], mirrors: set[int], mirrored: bool
) -> None:
    assert required(possible, joining, own=1) == mirrors
    assert is_mirrored(possible) == mirrored


def test_the_slowest_disk_decides() -> None:
    assert durable_through(9, {2: 7, 3: 8}, [2, 3]) == 7
    assert durable_through(6, {2: 7}, [2]) == 6
    assert durable_through(6, {}, []) == 6
    assert durable_through(6, {2: 7}, [2, 3]) is None


# The register


def found(value: ReplicaSet, version: int) -> Found:
    return Found(Znode(encode_set(value), version, created=5))


def replacing(number: int, value: ReplicaSet, version: int) -> Ask:
    return Ask(number, Transaction((Replace(PATH, encode_set(value), version),)))


def knowing(value: ReplicaSet, version: int = 4) -> Register:
    register = Register("seattle", retry=200 * MS)
    assert register.read() == [Ask(1, Read(PATH))]
    assert register.answered(Answered(1, found(value, version)), 0) == []
    return register


def test_a_target_is_possible_until_its_answer() -> None:
    register = knowing(ALONE)
    assert register.propose(PAIR, 0) == [replacing(2, PAIR, 4)]
    assert register.possible == [ALONE, PAIR]
    register.answered(Answered(2, Done((5,))), 0)
    assert register.possible == [PAIR]
    assert register.confirmed == register.known


def test_an_unknown_target_stays_possible_though_a_read_shows_the_old_version() -> None:
    register = knowing(ALONE)
    register.propose(PAIR, 0)
    assert register.answered(Answered(2, Unknown()), 0) == [Ask(3, Read(PATH))]
    register.answered(Answered(3, found(ALONE, 4)), 0)
    assert register.possible == [ALONE, PAIR]
    # It is asked again on the same version; that it is refused shows that the first was carried out.
    assert register.tick(200 * MS) == [replacing(4, PAIR, 4)]
    assert register.answered(Answered(4, Rejected(0, Reason.VERSION)), 200 * MS) == [Ask(5, Read(PATH))]
    assert register.possible == [ALONE, PAIR]
    register.answered(Answered(5, found(PAIR, 5)), 200 * MS)
    assert register.possible == [PAIR]


def test_a_read_is_not_a_confirmation() -> None:
    register = knowing(ALONE)
    register.propose(PAIR, 0)
    register.answered(Answered(2, Unknown()), 0)
    register.answered(Answered(3, found(PAIR, 5)), 0)
    assert register.possible == [PAIR]
    assert register.confirmed is None


def test_a_stale_read_changes_nothing() -> None:
    register = knowing(PAIR, 5)
    register.read()
    register.answered(Answered(2, found(ALONE, 4)), 0)
    assert register.possible == [PAIR]


def test_a_second_target_waits_for_the_first() -> None:
    register = knowing(ALONE)
    register.propose(PAIR, 0)
    with pytest.raises(ValueError, match="unknown"):
        register.propose(ALONE.joined(C), 0)


def test_a_change_that_is_told_during_a_read_is_read_again() -> None:
    register = knowing(ALONE)
    assert register.read() == [Ask(2, Read(PATH))]
    assert register.read() == []
    assert register.answered(Answered(2, found(ALONE, 4)), 0) == [Ask(3, Read(PATH))]
    assert register.answered(Answered(3, found(PAIR, 5)), 0) == []
    assert register.possible == [PAIR]


def test_a_read_without_an_answer_is_repeated() -> None:
    register = knowing(ALONE)
    register.read()
    assert register.answered(Answered(2, Unknown()), 0) == []
    assert register.due == 200 * MS
    assert register.tick(200 * MS) == [Ask(3, Read(PATH))]


def test_a_malformed_znode_is_reported_and_changes_nothing() -> None:
    register = knowing(ALONE)
    register.read()
    effects: list[Effect] = register.answered(Answered(2, Found(Znode(b"{}", 6, 5))), 0)
    assert [type(effect) for effect in effects] == [Alarm]
    assert register.possible == [ALONE]


def test_a_missing_znode_is_created_and_then_read() -> None:
    register = Register("seattle", retry=200 * MS)
    register.read()
    register.answered(Answered(1, Missing()), 0)
    assert register.is_missing
    assert register.create(ALONE, 0) == [Ask(2, Transaction((Create(PATH, encode_set(ALONE)),)))]
    assert register.answered(Answered(2, Done((0,))), 0) == [Ask(3, Read(PATH))]
    assert register.possible == []
