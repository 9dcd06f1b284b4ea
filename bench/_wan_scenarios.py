"""The networks and faults of bench/wan.py: sites, the path between each two, and the events.

A path is what the Internet offers between two sites, not a link of an overlay: any broker may connect to any other over
the path between their sites. `Layout` defines how the brokers of the different systems are connected, by what each
supports:

    links     all at once, with loops: Overlane, Zenoh
    mesh      every two brokers, and messages pass one link only: a NATS cluster
    tree      one connection at a time towards the source, the next one as a fallback: NATS leaf nodes, Mosquitto
    pulls     who gets messages from whom, by alternatives: RabbitMQ federation
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

Ends = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Path:
    """Between two sites, the same in both directions."""

    latency_ms: float
    loss: float = 0.0
    rate_bps: int | None = None
    queue_bytes: int | None = None
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Becomes:
    """From a moment on, a path is another."""

    at_s: float
    ends: Ends
    path: Path


@dataclass(frozen=True, slots=True)
class Kill:
    """Of some brokers the one that works most is killed."""

    at_s: float
    among: Sequence[str]


@dataclass(frozen=True, slots=True)
class Bulk:
    """Other traffic from source to destination: through the brokers, or beside them."""

    at_s: float
    until_s: float
    rate_bps: int | None
    """Through the brokers at this rate; none is a TCP connection of its own that takes what it can get."""


@dataclass(frozen=True, slots=True)
class Unplug:
    """Of a site's uplinks the one that has carried most."""

    at_s: float
    site: str


@dataclass(frozen=True, slots=True)
class PlugIn:
    """The one that was unplugged."""

    at_s: float
    site: str


Event = Becomes | Kill | Bulk | Unplug | PlugIn


@dataclass(frozen=True, slots=True)
class Uplink:
    """One of several ways in which a site is connected: what it adds to all its paths."""

    name: str
    latency_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Span:
    name: str
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class Layout:
    links: Sequence[Ends]
    tree: Mapping[str, Sequence[str]]
    pulls: Mapping[str, Sequence[str]]
    is_mesh: bool = True
    """Every two sites have a path."""


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    paths: Mapping[Ends, Path]
    layout: Layout
    source: str
    destination: str
    deadline_ms: float
    spans: Sequence[Span]
    events: Sequence[Event]
    uplinks: Mapping[str, Sequence[Uplink]] = field(default_factory=dict)
    """Of the sites that have several."""

    @property
    def sites(self) -> list[str]:
        return list(dict.fromkeys(site for ends in self.paths for site in ends))

    @property
    def duration_s(self) -> float:
        return max(span.to_s for span in self.spans)

    @property
    def quickest_ms(self) -> float:
        """What the path itself takes, by the best way there is at the start."""
        best = {self.source: 0.0}
        for _ in self.sites:
            for (a, b), path in self.paths.items():
                for here, there in ((a, b), (b, a)):
                    if here in best and not path.is_cut:
                        best[there] = min(best.get(there, float("inf")), best[here] + path.latency_ms)
        return best[self.destination]


FIVE_CITIES = {
    ("seattle", "washington"): Path(30.0),
    ("seattle", "denver"): Path(14.0),
    ("seattle", "los-angeles"): Path(13.0),
    ("los-angeles", "denver"): Path(11.0),
    ("los-angeles", "orlando"): Path(25.0),
    ("los-angeles", "washington"): Path(29.0),
    ("denver", "washington"): Path(20.0),
    ("denver", "orlando"): Path(20.0),
    ("orlando", "washington"): Path(10.0),
    ("seattle", "orlando"): Path(32.0),
}
"""Those of examples/five-cities.toml, and the two paths that are missing there."""
DIRECT: Ends = ("seattle", "washington")
NEIGHBOURS = {ends: path for ends, path in FIVE_CITIES.items() if ends not in (DIRECT, ("seattle", "orlando"))}

TO_WASHINGTON = Layout(
    links=tuple(FIVE_CITIES),
    tree={
        "seattle": [],
        "denver": ["seattle"],
        "los-angeles": ["seattle"],
        "orlando": ["seattle"],
        "washington": ["seattle", "denver"],
    },
    pulls={"washington": ["seattle"]},
)
THROUGH_OTHERS = Layout(
    links=tuple(NEIGHBOURS),
    tree={
        "seattle": [],
        "denver": ["seattle"],
        "los-angeles": ["seattle"],
        "orlando": ["denver"],
        "washington": ["denver", "los-angeles"],
    },
    pulls={"washington": ["denver", "los-angeles"], "denver": ["seattle"], "los-angeles": ["seattle"]},
    is_mesh=False,
)
GOOD, BAD = Path(30.0), Path(250.0, loss=0.01)
"""A and B of the deadline-aware overlays' test cases."""


def direct(phase_s: float) -> Scenario:
    path = FIVE_CITIES[DIRECT]
    states = {
        "quiet": path,
        "loss 1 %": replace(path, loss=0.01),
        "loss 5 %": replace(path, loss=0.05),
        "+60 ms": replace(path, latency_ms=path.latency_ms + 60),
        "cut": replace(path, is_cut=True),
        "healed": path,
    }
    spans = _in_turn(states, phase_s)
    return Scenario(
        "direct",
        "Five cities, faults on the direct path only",
        FIVE_CITIES,
        TO_WASHINGTON,
        *DIRECT,
        deadline_ms=60,
        spans=spans,
        events=[Becomes(span.from_s, DIRECT, states[span.name]) for span in spans[1:]],
    )


def bursts(phase_s: float) -> Scenario:
    """Three bursts in a phase, as long as the pauses between them."""
    spans = _in_turn(["quiet", "around the source", "around the destination", "healed"], phase_s)
    events = [
        event
        for span, site in zip(spans[1:3], DIRECT, strict=True)
        for number in range(3)
        for event in _burst(site, span.from_s + number * phase_s / 3, phase_s / 6)
    ]
    return Scenario(
        "bursts",
        "Five cities, bursts of 30 % loss on all paths of the source, then of the destination",
        FIVE_CITIES,
        TO_WASHINGTON,
        *DIRECT,
        deadline_ms=60,
        spans=spans,
        events=events,
    )


def _burst(site: str, at_s: float, duration_s: float) -> Iterator[Becomes]:
    for ends, path in FIVE_CITIES.items():
        if site in ends:
            yield Becomes(at_s, ends, replace(path, loss=0.3))
            yield Becomes(at_s + duration_s, ends, path)


def killed(phase_s: float) -> Scenario:
    spans = _in_turn(["quiet", "killed"], phase_s)
    return Scenario(
        "killed",
        "Five cities without a direct path: the intermediate broker in use is killed",
        NEIGHBOURS,
        THROUGH_OTHERS,
        *DIRECT,
        deadline_ms=60,
        spans=spans,
        events=[Kill(spans[1].from_s, ["denver", "los-angeles"])],
    )


def congested(phase_s: float) -> Scenario:
    spans = _in_turn(["quiet", "bulk through the brokers", "bulk beside them", "after"], phase_s)
    narrow = replace(FIVE_CITIES[DIRECT], rate_bps=10_000_000, queue_bytes=125_000)
    return Scenario(
        "congested",
        "Five cities, a direct path of 10 Mbit/s with a queue of 100 ms, shared with bulk",
        {**FIVE_CITIES, DIRECT: narrow},
        TO_WASHINGTON,
        *DIRECT,
        deadline_ms=60,
        spans=spans,
        events=[
            Bulk(spans[1].from_s, spans[1].to_s, 12_000_000),
            Bulk(spans[2].from_s, spans[2].to_s, None),
        ],
    )


def uplinks(phase_s: float) -> Scenario:
    """All paths of the destination go over the same uplink, so there is no way around it but the other one."""
    spans = _in_turn(["quiet", "unplugged", "plugged in"], phase_s)
    _, site = DIRECT
    return Scenario(
        "uplinks",
        "Five cities, the destination has two uplinks, one of them 10 ms longer: the one in use is unplugged",
        FIVE_CITIES,
        TO_WASHINGTON,
        *DIRECT,
        deadline_ms=60,
        spans=spans,
        events=[Unplug(spans[1].from_s, site), PlugIn(spans[2].from_s, site)],
        uplinks={site: [Uplink("fibre"), Uplink("radio", 10.0)]},
    )


CASES = {number: tuple(BAD if (number - 1) & bit else GOOD for bit in (4, 2, 1)) for number in range(1, 9)}
"""What L1, L2 and L3 are in each of the eight cases."""
L1, L2, L3 = ("edge-1", "router"), ("router", "edge-2"), ("edge-1", "edge-2")
SETTLES_S, UNDER_WAY_S = 2.0, 0.5


def cases(phase_s: float, *, extra: bool) -> Scenario:
    """A new case settles before it is judged, and what is under way at the end of one is not judged by the next."""
    period_s = SETTLES_S + phase_s + UNDER_WAY_S
    starts_s = [(number - 1) * period_s for number in CASES]
    spans = [
        Span(_case_name(number), start_s + SETTLES_S, start_s + SETTLES_S + phase_s)
        for number, start_s in zip(CASES, starts_s, strict=True)
    ]
    ends = (L1, L2, L3) if extra else (L1, L2)
    events = [
        Becomes(start_s, one, path)
        for start_s, paths in zip(starts_s, CASES.values(), strict=True)
        for one, path in zip(ends, paths, strict=False)
    ]
    single = Layout(
        links=ends,
        tree={"edge-1": [], "router": ["edge-1"], "edge-2": ["router"]},
        pulls={"edge-2": ["router"], "router": ["edge-1"]},
        is_mesh=False,
    )
    both = Layout(
        links=ends,
        tree={"edge-1": [], "router": ["edge-1"], "edge-2": ["edge-1", "router"]},
        pulls={"edge-2": ["edge-1"]},
    )
    return Scenario(
        "cases-extra" if extra else "cases-single",
        "Eight cases of 30 ms without loss (A) and 250 ms with 1 % (B), "
        + ("with the extra path L3" if extra else "on L1 and L2 alone"),
        dict.fromkeys(ends, GOOD),
        both if extra else single,
        "edge-1",
        "edge-2",
        deadline_ms=100,
        spans=spans,
        events=events,
    )


def _case_name(number: int) -> str:
    return f"{number}: " + "".join("B" if path is BAD else "A" for path in CASES[number])


class PhaseSeconds:
    """How long a phase is, as it is asked for: of all scenarios, and of some by their names. `4,direct=12`"""

    def __init__(self, asked: str) -> None:
        self._usual_s = 12.0
        self._by_scenario: dict[str, float] = {}
        for one in asked.split(","):
            name, is_named, seconds = one.rpartition("=")
            if is_named:
                self._by_scenario[name] = float(seconds)
            else:
                self._usual_s = float(seconds)

    def of(self, scenario: str) -> float:
        return self._by_scenario.get(scenario, self._usual_s)


def scenarios(seconds: PhaseSeconds) -> dict[str, Scenario]:
    made: dict[str, Callable[[float], Scenario]] = {
        "direct": direct,
        "bursts": bursts,
        "killed": killed,
        "congested": congested,
        "uplinks": uplinks,
        "cases-single": partial(cases, extra=False),
        "cases-extra": partial(cases, extra=True),
    }
    return {name: make(seconds.of(name)) for name, make in made.items()}


def _in_turn(names: Mapping[str, object] | Sequence[str], each_s: float) -> list[Span]:
    return [Span(name, number * each_s, (number + 1) * each_s) for number, name in enumerate(names)]
