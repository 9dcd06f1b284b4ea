"""A copy of znodes follows the service through lost answers, stale reads, cut connections and expired sessions."""

import random

import pytest
from faulty_connection import FaultyConnection

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
    Transaction,
)
from overlane.coordination.follower import Follower, Numbered
from overlane.coordination.znodes import Tree, Watch, ZooKeeperClient

SEEDS = range(60)


class Copy:
    """A follower behind a connection with all its faults."""

    def __init__(self, tree: Tree, luck: random.Random) -> None:
        self.requests = Numbered()
        self.follower = Follower(self.requests, ("/config",), ("/brokers",), ("/domains",))
        self.wire = FaultyConnection(tree, luck, self._take, self.requests.take)

    def _take(self, event: Event) -> None:
        if isinstance(event, Answered):
            request = self.requests.answered(event.request)
            assert request is not None
            self.follower.answered(event, request)
        else:
            self.follower.handle(event)


def change(tree: Tree, writer: ZooKeeperClient, luck: random.Random) -> list[tuple[int, Watch]]:
    name, domain = luck.choice("abcdef"), f"/domains/{luck.choice('xyz')}"
    operations: list[Operation] = [
        Create(domain),
        Delete(domain),
        *(make(f"{domain}/{name}", bytes([luck.randrange(256)])) for make in (Create, Create, Replace)),
        Delete(f"{domain}/{name}"),
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
    tree.handle(writer, Transaction((Create("/brokers"), Create("/domains"), Create("/config", b"0"))))
    copy = Copy(tree, luck)
    wire = copy.wire
    wire.connect()
    for _ in range(300):
        match luck.choices(["step", "change", "cut", "expire", "connect"], [12, 4, 0.4, 0.2, 2])[0]:
            case "step":
                wire.step()
            case "change":
                wire.take(change(tree, writer, luck))
            case "cut" if wire.is_connected:
                wire.cut()
            case "expire":
                wire.expire()
            case "connect" if not wire.is_connected:
                wire.connect()
    if not wire.is_connected:
        wire.connect()
    while wire.step():
        pass
    assert copy.follower.is_complete
    followed = [path for path in tree._entries if path.startswith(("/brokers/", "/config")) or path.count("/") == 3]
    assert copy.follower.found == {path: tree._entries[path].node for path in followed}
    for parent in ("/brokers", "/domains/x", "/domains/y", "/domains/z"):
        names = [path for path in followed if path.rpartition("/")[0] == parent]
        assert copy.follower.children(parent) == {path.rpartition("/")[2]: tree._entries[path].node for path in names}


def test_nothing_is_forgotten_while_there_is_no_connection() -> None:
    tree = Tree()
    writer = tree.open_session()
    tree.handle(writer, Transaction((Create("/brokers"), Create("/brokers/a", b"1"), Create("/config", b"0"))))
    copy = Copy(tree, random.Random(0))
    wire = copy.wire
    wire.connect()
    while wire.step():
        pass
    wire.cut()
    tree.handle(writer, Transaction((Delete("/brokers/a"),)))
    while wire.step():
        pass
    assert set(copy.follower.found) == {"/brokers/a", "/config"}
    assert not copy.follower.is_complete


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
