"""A neighbour's link is judged by what the link does, not by when this broker comes to look."""

from overlane.core.linkhealth import LinkState
from overlane.core.neighbour import LATE_MIN, Neighbour, Signals
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
