"""A neighbour's link is judged by what the link does, not by when this broker comes to look."""

from overlane.core.links.link_health import LinkState
from overlane.core.links.neighbour import LATE_MIN, Neighbour
from overlane.core.links.signals import Signals
from overlane.core.units import MS, SECOND, Nanos

ROUND_TRIP: Nanos = 20 * MS


class Line:
    """A link whose pings are answered after a round trip, as long as it works."""

    def __init__(self) -> None:
        self.now: Nanos = SECOND
        self.neighbour = Neighbour("b", "edf", 1 << 20, 500 * MS, Signals())
        self.neighbour.connect("a", 1, self.now)
        self.neighbour.greet(1, self.now)
        self._token = 0
        for _ in range(20):
            self.pings()
            self.answers()

    @property
    def state(self) -> LinkState:
        return self.neighbour.health.state

    def pings(self) -> None:
        self.now = max(self.now, self.neighbour.next_deadline())
        self.looks()

    def looks(self) -> None:
        self.neighbour.tick(self.now)
        while self.neighbour.pull_control() is not None:
            pass

    def answers(self) -> None:
        self._token += 1
        self.now += ROUND_TRIP
        self.neighbour.answered(self._token, self.now)


def test_an_answer_that_lay_unread_while_the_broker_was_busy_tells_nothing_of_the_link() -> None:
    line = Line()
    for _ in range(20):
        line.pings()
        line.now = line.neighbour.next_deadline() + 300 * MS  # the broker stalls, the answer waits
        line.looks()
        line.now -= ROUND_TRIP
        line.answers()
        assert (line.state, line.neighbour.health.swing_ns) == (LinkState.UP, 0)
        line.pings()
        line.answers()
    assert line.neighbour.health.loss_millionths == 0
    assert line.neighbour.health.latency_ns == ROUND_TRIP // 2


def test_a_broker_that_is_always_late_still_notices_a_link_that_passes_nothing() -> None:
    line = Line()
    begun = line.now
    while line.state is LinkState.UP:
        line.now = max(line.now, line.neighbour.next_deadline()) + 2 * LATE_MIN
        line.looks()
        assert line.now - begun < 5 * SECOND
    while not line.neighbour.health.dead:
        line.now = max(line.now, line.neighbour.next_deadline()) + 2 * LATE_MIN
        line.looks()
        assert line.now - begun < 10 * SECOND


def test_a_broker_on_time_takes_silence_at_its_word() -> None:
    line, busy = Line(), Line()
    for one, late in ((line, 0), (busy, 2 * LATE_MIN)):
        one.pings()
        while one.state is LinkState.UP:
            one.now = max(one.now, one.neighbour.next_deadline()) + late
            one.looks()
    assert line.now < busy.now


def test_a_link_is_given_as_much_more_time_as_the_broker_itself_was_late() -> None:
    line = Line()
    line.pings()
    line.now = line.neighbour.next_deadline() + 1_300 * MS
    line.looks()
    until = line.now + 1_200 * MS
    while line.neighbour.next_deadline() < until:
        line.pings()
        assert line.state is LinkState.UP
    assert not line.neighbour.health.dead


def test_a_broker_that_is_late_all_the_time_notices_a_link_on_which_nothing_passes() -> None:
    line = Line()
    begun = line.now
    while not line.neighbour.health.dead:
        line.now = max(line.now, line.neighbour.next_deadline()) + 1_300 * MS
        line.looks()
    assert line.now - begun < 20 * SECOND


def test_a_broker_that_is_on_time_again_takes_silence_at_its_word_again() -> None:
    line = Line()
    line.neighbour.health.lagged(2 * SECOND)
    for _ in range(60):
        line.pings()
        line._token = line.neighbour.health._token - 1
        line.answers()
    begun = line.now
    while not line.neighbour.health.dead:
        line.pings()
    assert line.now - begun < 3 * SECOND
