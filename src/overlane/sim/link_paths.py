"""The paths of a link in the simulator: one for each pair of uplinks of its two brokers, and which one each end uses.

Each end chooses by the rules of a broker that runs (`core.links.path_choice`). It knows at once that one of its own
uplinks is unplugged or plugged in, as the kernel reports the carrier, and the other end learns it over the best path
that is left. Until then, what that end sends over the dead path is swallowed.
"""

from collections.abc import Callable, Iterator

from overlane.core.links.path_choice import PathChoice, PathSample
from overlane.core.units import MS, Nanos
from overlane.network.schema import Uplink
from overlane.sim.engine import Engine

REVIEW_EVERY: Nanos = 500 * MS
"""As often as brokers probe a path."""

Pair = tuple[Uplink, Uplink]

_PLAIN = Uplink(name="")


class LinkPaths:
    """`rtt_ns`: of the link itself. `switched` is told the end that uses another path from now on, `stands_by` the
    round trip of the next best path of an end; 0 if there is none."""

    def __init__(
        self,
        engine: Engine,
        ends: tuple[str, str],
        rtt_ns: Callable[[], Nanos],
        switched: Callable[[str], None],
        stands_by: Callable[[str, Nanos], None],
    ) -> None:
        self._engine = engine
        self._ends = ends
        self._rtt_ns = rtt_ns
        self._switched = switched
        self._stands_by = stands_by
        self._uplinks: dict[str, tuple[Uplink, ...]] = dict.fromkeys(ends, (_PLAIN,))
        self._unplugged: set[tuple[str, str]] = set()
        self._known: dict[str, set[tuple[str, str]]] = {end: set() for end in ends}
        self._choices = {end: PathChoice() for end in ends}
        self._reviews: set[str] = set()

    def set_uplinks(self, end: str, uplinks: tuple[Uplink, ...]) -> None:
        """The broker at this end has these, all plugged in."""
        self._uplinks[end] = uplinks
        for one in self._ends:
            self._choices[one] = PathChoice()
            self._judge(one)

    def plug(self, end: str, uplink: str, is_in: bool) -> None:
        """Nobody knows yet."""
        (self._unplugged.discard if is_in else self._unplugged.add)((end, uplink))

    def notice(self, end: str) -> None:
        """This end notices what became of its uplinks, and tells the other one."""
        self._learn(end)
        (other,) = [one for one in self._ends if one != end]
        working = [self.round_trip_ns(pair) for _, pair in self._pairs() if self.passes(pair)]
        if working:
            self._engine.at(self._engine.now + min(working) // 2, self._learn, other)

    def standby_ns(self, end: str) -> Nanos:
        return self._choices[end].standby_ns

    def used_by(self, end: str) -> Pair:
        number = self._choices[end].in_use
        pairs = dict(self._pairs())
        return pairs[number] if number is not None else pairs[0]

    def passes(self, pair: Pair) -> bool:
        return not any((end, uplink.name) in self._unplugged for end, uplink in zip(self._ends, pair, strict=True))

    @property
    def pass_at_all(self) -> bool:
        return any(self.passes(pair) for _, pair in self._pairs())

    def opened(self) -> None:
        """A connection was dialled: both ends know what there is."""
        for end in self._ends:
            self._known[end] = set(self._unplugged)
            self._judge(end)

    def round_trip_ns(self, pair: Pair) -> Nanos:
        return self._rtt_ns() + 2 * sum(uplink.latency_ns for uplink in pair)

    def _pairs(self) -> Iterator[tuple[int, Pair]]:
        low, high = self._ends
        yield from enumerate((one, other) for one in self._uplinks[low] for other in self._uplinks[high])

    def _learn(self, end: str) -> None:
        self._known[end] = set(self._unplugged)
        self._judge(end)

    def _judge(self, end: str) -> None:
        choice, known = self._choices[end], self._known[end]
        before = choice.in_use
        samples = [
            PathSample(
                number,
                is_open=True,
                is_gone=any((one, uplink.name) in known for one, uplink in zip(self._ends, pair, strict=True)),
                rtt_ns=self.round_trip_ns(pair),
                loss_millionths=int(1e6 * max(uplink.loss for uplink in pair)),
            )
            for number, pair in self._pairs()
        ]
        standby_before = choice.standby_ns
        choice.judge(samples, self._engine.now)
        if choice.standby_ns != standby_before:
            self._stands_by(end, choice.standby_ns)
        if choice.in_use != before and before is not None:
            self._switched(end)
        used = next((one for one in samples if one.number == choice.in_use), None)
        is_settled = used is None or not any(one.works and one.rtt_ns < used.rtt_ns for one in samples)
        if not is_settled and end not in self._reviews:
            self._reviews.add(end)
            self._engine.at(self._engine.now + REVIEW_EVERY, self._review, end)

    def _review(self, end: str) -> None:
        self._reviews.discard(end)
        self._judge(end)
