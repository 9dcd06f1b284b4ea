"""Which routes moved in a step, by what the broker that decided it tells."""

import time

import msgspec

from overlane.adminapi.views import EventList, EventView
from overlane.core.units import MS
from overlane.demo.route_moves import RouteLog
from overlane.errors import Unavailable
from overlane.network import Network
from overlane.sim.story import network_of
from overlane.testbed.loopback import LoopbackEnvironment

DIRECT, AROUND = ("a", "b"), ("a", "c", "b")


class Told(LoopbackEnvironment):
    """A ground whose brokers tell what the test says."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.events: list[EventView] = []
        self.is_answering = True

    def admin_request(self, broker: str, method: str, path: str) -> bytes:
        if not self.is_answering:
            raise Unavailable(broker, "away")
        assert method == "GET"
        after = int(path.removeprefix("/events?after="))
        items = tuple(event for event in self.events if event.number > after)
        return msgspec.json.encode(EventList(items=items, newest=len(self.events)))

    def moves(self, path: tuple[str, ...], cause: str, ago_s: float = 0.0, topic: str = "alarms/1") -> None:
        self.tells(kind="route", ago_s=ago_s, topics=(topic,), paths={"b": (path,)} if path else {}, cause=cause)

    def tells(self, **event: object) -> None:
        self.events.append(msgspec.convert({"number": len(self.events) + 1, **event}, EventView))


def ground() -> Told:
    return Told(network_of({("a", "b"): MS, ("a", "c"): MS, ("c", "b"): MS}, {}))


def test_a_move_is_told_with_how_soon_it_came_and_why() -> None:
    told = ground()
    told.moves(DIRECT, "first use")
    diary = RouteLog(told, "a")
    told.moves(AROUND, "no answer in time over link a-b", ago_s=2.0)
    told.tells(kind="link", ago_s=1.0, peer="b", state="failed")
    (move,) = diary.moves(time.monotonic() - 5.0)
    assert (move.topic, move.cause, move.paths, move.times) == (
        "alarms/1",
        "no answer in time over link a-b",
        (AROUND,),
        1,
    )
    assert 2.9 < move.after_s < 5.0
    assert diary.moves(time.monotonic()) == []


def test_of_several_moves_the_first_tells_how_soon_and_why_and_the_last_where_to() -> None:
    told = ground()
    diary = RouteLog(told, "a")
    told.moves(AROUND, "no answer in time over link a-b", ago_s=3.0)
    told.moves((), "link a-c failed", ago_s=2.5)  # nowhere, for a moment
    told.moves(DIRECT, "a quicker way", ago_s=2.0)
    told.moves(DIRECT, "first use", topic="reports/1")
    alarms, reports = diary.moves(time.monotonic() - 5.0)
    assert (alarms.cause, alarms.paths, alarms.times) == ("no answer in time over link a-b", (DIRECT,), 2)
    assert (reports.topic, reports.times) == ("reports/1", 1)


def test_what_moved_before_the_step_or_at_a_broker_that_is_away_is_not_told() -> None:
    told = ground()
    diary = RouteLog(told, "a")
    told.moves(AROUND, "no answer in time over link a-b", ago_s=60.0)
    assert diary.moves(time.monotonic() - 5.0) == []
    told.is_answering = False
    assert diary.moves(time.monotonic() - 5.0) == []
