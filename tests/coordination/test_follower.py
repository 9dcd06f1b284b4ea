"""A copy of znodes follows the service through lost answers, stale reads, cut connections and expired sessions."""

import random

import pytest

from overlane.coordination.contract import (
    Answered,
    Changed,
    ChildrenChanged,
    Connected,
    Create,
    Delete,
    Event,
    Operation,
    Replace,
    Request,
    Suspended,
    Transaction,
    Unknown,
)
from overlane.coordination.follower import Follower, Numbered
from overlane.coordination.znodes import Client, Tree, Watch

SEEDS = range(60)


class Wire:
    """A connection that delays and loses: answers come late and in any order relative to watches."""

    def __init__(self, tree: Tree, luck: random.Random) -> None:
        self._tree = tree
        self._luck = luck
        self.requests = Numbered()
        self.follower = Follower(self.requests, ("/config",), ("/brokers",))
        self._client: Client | None = None
        self._is_connected = False
        self._pending: list[Event] = []
        self._asked: list[tuple[int, Request]] = []

    def connect(self) -> None:
        is_new = self._client is None or not self._tree.has_session(self._client.session)
        if self._client is None or is_new:
            self._client = self._tree.open_session()
        self._is_connected = True
        self._hand_over(Connected(self._client.session, is_new))

    def cut(self) -> None:
        assert self._client is not None
        self._is_connected = False
        self._client.watches.clear()
        lost = [event for event in self._pending if isinstance(event, Answered)] + [
            Answered(number, Unknown()) for number, _ in self._asked
        ]
        self._pending, self._asked = [], []
        self._hand_over(Suspended())
        for answer in lost:
            self._hand_over(Answered(answer.request, Unknown()))

    def expire(self) -> list[tuple[int, Watch]]:
        if self._is_connected:
            self.cut()
        assert self._client is not None
        return self._tree.end_session(self._client.session)

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    def fire(self, fired: list[tuple[int, Watch]]) -> None:
        if self._client is not None and self._is_connected:
            self._pending += [watch for session, watch in fired if session == self._client.session]

    def step(self) -> bool:
        """One thing of those under way happens; False if there is none."""
        self._asked += self.requests.take()
        if not self._is_connected:
            asked, self._asked = self._asked, []
            for number, _ in asked:
                self._hand_over(Answered(number, Unknown()))
            return bool(asked)
        choices = [*(["asked"] if self._asked else []), *(["pending"] if self._pending else [])]
        if not choices:
            return False
        if self._luck.choice(choices) == "asked":
            number, request = self._asked.pop(0)
            assert self._client is not None
            answer, _ = self._tree.handle(self._client, request)
            self._pending.append(Answered(number, answer))
        else:
            # Answers keep their order, and so do watches; between the two there is none.
            is_answer = self._luck.random() < 0.5
            of_kind = [event for event in self._pending if isinstance(event, Answered) == is_answer]
            event = (of_kind or self._pending)[0]
            self._pending.remove(event)
            self._hand_over(event)
        return True

    def _hand_over(self, event: Event) -> None:
        if isinstance(event, Answered):
            request = self.requests.answered(event.request)
            assert request is not None
            self.follower.answered(event, request)
        else:
            self.follower.handle(event)


def change(tree: Tree, writer: Client, luck: random.Random) -> list[tuple[int, Watch]]:
    name = luck.choice("abcdef")
    operations: list[Operation] = [
        Create(f"/brokers/{name}", bytes([luck.randrange(256)])),
        Replace(f"/brokers/{name}", bytes([luck.randrange(256)])),
        Delete(f"/brokers/{name}"),
        Replace("/config", bytes([luck.randrange(256)])),
    ]
    return tree.handle(writer, Transaction((luck.choice(operations),)))[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_copy_is_right_in_the_end_whatever_happened_on_the_way(seed: int) -> None:
    luck = random.Random(seed)
    tree = Tree()
    writer = tree.open_session()
    tree.handle(writer, Transaction((Create("/brokers"), Create("/config", b"0"))))
    wire = Wire(tree, luck)
    wire.connect()
    for _ in range(300):
        match luck.choices(["step", "change", "cut", "expire", "connect"], [12, 4, 0.4, 0.2, 2])[0]:
            case "step":
                wire.step()
            case "change":
                wire.fire(change(tree, writer, luck))
            case "cut" if wire.is_connected:
                wire.cut()
            case "expire":
                wire.fire(wire.expire())
            case "connect" if not wire.is_connected:
                wire.connect()
    if not wire.is_connected:
        wire.connect()
    while wire.step():
        pass
    assert wire.follower.is_current
    expected = {path: entry.node for path, entry in tree._entries.items() if path.startswith(("/brokers/", "/config"))}
    assert wire.follower.found == expected


def test_nothing_is_forgotten_while_there_is_no_connection() -> None:
    tree = Tree()
    writer = tree.open_session()
    tree.handle(writer, Transaction((Create("/brokers"), Create("/brokers/a", b"1"), Create("/config", b"0"))))
    wire = Wire(tree, random.Random(0))
    wire.connect()
    while wire.step():
        pass
    wire.cut()
    tree.handle(writer, Transaction((Delete("/brokers/a"),)))
    while wire.step():
        pass
    assert set(wire.follower.found) == {"/brokers/a", "/config"}
    assert not wire.follower.is_current


def test_a_child_that_comes_costs_one_read_however_many_there_are() -> None:
    tree = Tree()
    writer = tree.open_session()
    tree.handle(writer, Transaction((Create("/brokers"), *(Create(f"/brokers/{number}") for number in range(100)))))
    requests = Numbered()
    follower = Follower(requests, (), ("/brokers",))
    reader = tree.open_session()

    def answer_all() -> int:
        count = 0
        while asked := requests.take():
            for number, request in asked:
                count += 1
                answer, _ = tree.handle(reader, request)
                requests.answered(number)
                follower.answered(Answered(number, answer), request)
        return count

    follower.handle(Connected(reader.session, True))
    answer_all()
    tree.handle(writer, Transaction((Create("/brokers/new"),)))
    follower.handle(ChildrenChanged("/brokers"))
    assert answer_all() == 2  # the list, and the new one
    follower.handle(Changed("/brokers/new"))
    assert answer_all() == 1
