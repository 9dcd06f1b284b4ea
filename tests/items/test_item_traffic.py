"""Clients that follow the directory in virtual time: what they lose and get twice, and that the soak notices it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest import mock

import pytest

from overlane.core.units import MS, NEVER, SECOND
from overlane.items import mastership
from overlane.items.directory import Entry
from overlane.items.switching import Switching
from overlane.network.schema import Item, Placement
from overlane.pubsub.publishing.message_ids import IdWindow
from overlane.sim.items import run_items_seed, traffic
from overlane.sim.items.domain import SimulatedDomain
from overlane.sim.items.running import ItemsWorld
from overlane.sim.random_streams import stream

NAMES = ("a", "b", "c", "d")
ITEMS = tuple(Item(name=f"i{number}", topics=(f"i{number}/#",), critical=number == 0) for number in range(4))


class Story:
    """Four brokers, and a message of each item every 50 ms."""

    def __init__(self) -> None:
        self.domain = SimulatedDomain(stream(1, "story"), NAMES, ITEMS, Placement(capacity=1_000.0))
        self.handed: list[tuple[str, str]] = []
        self.traffic = traffic.Traffic(self.domain, lambda item, broker: self.handed.append((item, broker)))
        self.domain.on_policy = lambda broker, _: self.traffic.policy_changed(broker)
        self.domain.run(8 * SECOND)

    def publish(self, seconds: float) -> None:
        for _ in range(int(seconds * 20)):
            for item in ITEMS:
                self.traffic.publish(item.name)
            self.domain.run(50 * MS)

    def longest(self, item: str) -> float:
        """Milliseconds from a message to its delivery."""
        return max((one.arrived_at - one.at) / MS for one in self.traffic.sent.values() if one.item == item)

    def entry(self, item: str) -> Entry:
        return self.traffic.publisher.directory.entries[item]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_lost_primary_delays_no_critical_message_and_moves_the_items_of_that_broker_alone(how: str) -> None:
    story = Story()
    story.publish(1)
    homes = {item.name: story.entry(item.name).primary.broker for item in ITEMS}
    story.handed.clear()
    getattr(story.domain.brokers[homes["i0"]], how)()
    story.publish(2)
    story.domain.run(SECOND)
    assert story.longest("i0") <= 10
    assert all(one.times == 1 for one in story.traffic.sent.values() if one.item == "i0")
    others = [item for item, home in homes.items() if home != homes["i0"]]
    assert others
    for item in others:
        assert {broker for one, broker in story.handed if one == item} == {homes[item]}, (
            "a switch of the affected alone"
        )
        assert story.longest(item) <= 10


def test_an_ordinary_item_is_published_at_its_mirror_within_300_ms_and_is_delivered_once() -> None:
    story = Story()
    story.publish(1)
    entry = story.entry("i1")
    assert entry.mirror is not None
    story.domain.brokers[entry.primary.broker].stop()
    story.publish(5)
    story.domain.heal()
    story.domain.run(20 * SECOND)
    mine = [one for one in story.traffic.sent.values() if one.item == "i1"]
    assert all(one.acknowledged_at < NEVER and one.times == 1 for one in mine)
    assert max(one.acknowledged_at - one.at for one in mine) <= 300 * MS


@pytest.mark.parametrize("seed", [5, 15, 16, 37, 41])
def test_clients_keep_their_promises_where_they_once_did_not(seed: int) -> None:
    verdict = run_items_seed(seed)
    assert verdict.broken is None, verdict.told()


SABOTAGE: dict[str, tuple[Callable[[], AbstractContextManager[object]], int, str]] = {
    "copies are not recognised": (
        lambda: mock.patch.object(IdWindow, "add", return_value=True),
        0,
        "a message is delivered once",
    ),
    "subscriptions end at once": (lambda: mock.patch.object(traffic, "OVERLAP", 0), 15, "nothing acknowledged is lost"),
    "silent brokers are not noticed": (
        lambda: mock.patch.object(Switching, "tick", return_value=([], [])),
        3,
        "messages are acknowledged soon",
    ),
    "the mirror is used although the primary is well": (
        lambda: mock.patch.object(Switching, "target", lambda _, entry: (entry.mirror or entry.primary).broker),
        2,
        "a healthy primary is not left",
    ),
    "critical items go to one broker": (
        lambda: mock.patch.object(traffic.SimPublisher, "targets", lambda self, one: [self.switching.target(one)]),
        0,
        "critical messages are not late",
    ),
    "what is not acknowledged is not handed on": (
        lambda: mock.patch.object(traffic.SimPublisher, "follow", return_value=None),
        3,
        "messages are acknowledged soon",
    ),
    "a node of an earlier session is kept": (
        lambda: mock.patch.object(mastership.Mastership, "_is_of_before", lambda _, node, own: node.owner != own),
        37,
        "the normal state returns",
    ),
}


@pytest.mark.parametrize("which", SABOTAGE)
def test_the_soak_notices_a_broken_rule_of_clients(which: str) -> None:
    sabotage, seed, invariant = SABOTAGE[which]
    with sabotage():
        broken = ItemsWorld(seed).run()
    assert broken is not None
    assert broken.invariant == invariant
