"""What every store promises, on disk or in memory."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from storebench import Kind, Loop, Turns, content, stores_in, stores_on

from overlane.node.store.errors import Cause, StoreError
from overlane.node.store.memory import MemoryDisk

MIB = 1 << 20


@pytest.fixture
def turns() -> Turns:
    return Turns(Loop())


@pytest.fixture(params=["on disk", "in memory"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    makers: dict[str, Callable[[], Kind]] = {
        "on disk": lambda: stores_in(tmp_path / "data"),
        "in memory": lambda: stores_on(MemoryDisk()),
    }
    return makers[request.param]()


def cause(error: StoreError | None) -> Cause | None:
    return error.cause if error else None


def test_a_new_store_is_empty(kind: Kind, turns: Turns) -> None:
    store = kind(turns)
    assert (content(store), store.quarantined, store.failing, store.incarnation) == ({}, [], None, 1)
    assert store.close() is None


def test_records_survive_and_erased_ones_do_not(kind: Kind, turns: Turns) -> None:
    store = kind(turns)
    turns.commit(store, {("a", b"1"): b"one", ("b", b"1"): b"", ("a", b""): b"x"})
    turns.commit(store, {("a", b"1"): None, ("b", b"1"): b"other", ("c", b"\0\xff"): b"\0" * MIB})
    store.close()
    store = kind(turns)
    assert content(store) == {("b", b"1"): b"other", ("a", b""): b"x", ("c", b"\0\xff"): b"\0" * MIB}
    store.close()


def test_every_life_has_a_greater_incarnation(kind: Kind, turns: Turns) -> None:
    lives = []
    for _ in range(3):
        store = kind(turns)
        lives.append(store.incarnation)
        store.close()
    assert lives == [1, 2, 3]


def test_turns_end_in_the_order_in_which_they_were_submitted(kind: Kind, turns: Turns) -> None:
    store = kind(turns)
    for turn in range(500):
        turns.submit(store, turn, {("a", b"%d" % (turn % 7)): b"%d" % turn})
    turns.loop.run_until(lambda: len(turns.ended) == 500)
    assert turns.ended == [(turn, None) for turn in range(500)]
    assert content(store) == {("a", b"%d" % (turn % 7)): b"%d" % turn for turn in range(493, 500)}
    store.close()


def test_no_turn_ends_inside_submit(kind: Kind, turns: Turns) -> None:
    store = kind(turns)
    turns.submit(store, "early", {("a", b"1"): b"one"})
    assert turns.ended == []
    turns.loop.run_until(lambda: turns.ended == [("early", None)])
    store.close()


def test_a_turn_without_changes_ends_after_those_before_it(kind: Kind, turns: Turns) -> None:
    store = kind(turns)
    turns.submit(store, 1, {("a", b"1"): b"one"})
    turns.submit(store, 2, {})
    turns.submit(store, 3, {("b", b"never there"): None})
    turns.loop.run_until(lambda: len(turns.ended) == 3)
    assert turns.ended == [(1, None), (2, None), (3, None)]
    store.close()


def test_closing_writes_what_is_pending(kind: Kind, turns: Turns) -> None:
    store = kind(turns)
    for turn in range(100):
        turns.submit(store, turn, {("a", b"%d" % turn): b"x"})
    assert store.close() is None
    turns.loop.run_what_waits()
    assert turns.ended == [(turn, None) for turn in range(100)]
    with pytest.raises(RuntimeError, match="closed"):
        store.submit({}, lambda _: None)
    store = kind(turns)
    assert len(content(store)) == 100
    store.close()


def test_a_full_store_keeps_the_turn_and_writes_it_when_there_is_room(kind: Kind, turns: Turns) -> None:
    store = kind(turns, bytes_max=MIB)
    turns.commit(store, {("a", b"%d" % number): b"x" * 50_000 for number in range(10)})
    turns.submit(store, "too much", {("b", b"%d" % number): b"y" * 50_000 for number in range(15)})
    turns.loop.run_until(lambda: bool(turns.states))
    assert cause(store.failing) is Cause.FULL
    assert len(turns.ended) == 1
    turns.submit(store, "makes room", {("a", b"%d" % number): None for number in range(10)})
    turns.loop.run_until(lambda: len(turns.ended) == 3)
    assert turns.ended[1:] == [("too much", None), ("makes room", None)]
    assert [cause(error) for error in turns.states] == [Cause.FULL, None]
    assert store.failing is None
    store.close()
    store = kind(turns)
    assert content(store) == {("b", b"%d" % number): b"y" * 50_000 for number in range(15)}
    store.close()


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_done_the_records_are_those_of_a_plain_dictionary(kind: Kind, turns: Turns, seed: int) -> None:
    luck = Random(seed)
    expected: dict[tuple[str, bytes], bytes] = {}
    for _ in range(3):
        store = kind(turns)
        assert content(store) == expected
        for _ in range(40):
            changes = {
                (luck.choice("abc"), b"%d" % luck.randrange(60)): luck.choice(
                    [None, luck.randbytes(luck.choice([0, 1, 150, 5000]))]
                )
                for _ in range(luck.choice([0, 1, 10, 70]))
            }
            expected = {name: value for name, value in {**expected, **changes}.items() if value is not None}
            if luck.random() < 0.3:
                turns.commit(store, changes)
                assert content(store) == expected
            else:
                turns.submit(store, "", changes)
        store.close()
