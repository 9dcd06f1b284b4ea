"""The driver of one broker: feeds it events and bytes, carries out its effects, keeps its timer and its durable store.

A turn is: inputs, then `flush`, then the effects in order, then sending what is ready, then the timer. Turns are
atomic: a crash comes between turns, and what a turn saved is saved. A crash drops the broker's memory and breaks its
connections; a restart makes a new broker from the store, under the next incarnation.

The driver decides nothing. It requires only the contract below, so that tests can replace the broker by anything.
"""

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar, assert_never

from overlane.core.config import BrokerConfig
from overlane.core.events import (
    BrokersRefused,
    Close,
    DeadlineUnmeetable,
    Deliver,
    DirectLinksWanted,
    Effect,
    Erase,
    Event,
    HeldMessageSent,
    InterestChanged,
    Lane,
    LaterIncarnationKnown,
    Leave,
    LinkChanged,
    LinkDown,
    LinkUp,
    NameConflict,
    NeighbourSaid,
    PathChanged,
    PathSuspected,
    PathTrusted,
    PublishResult,
    RefusedAtBorder,
    RequirementChanged,
    RouteChanged,
    RouteEstablished,
    Save,
    ScopeChanged,
    SetConfig,
    SetFailureRisk,
    StandbyChanged,
    Subscribe,
    Tick,
    Unsubscribe,
)
from overlane.core.units import NEVER, Nanos
from overlane.sim.clock import SkewedClock
from overlane.sim.engine import Engine
from overlane.sim.line import Frame
from overlane.sim.link import End, Link

Record = tuple[str, bytes, bytes]

TIMERS_IN_A_ROW_MAX = 1_000
"""More ticks than this without any time passing: the broker will never be content."""


class Core(Protocol):
    """What the driver needs of a broker."""

    @property
    def counters(self) -> Mapping[str, int]: ...
    def queue_bytes_max(self, peer: str) -> int: ...
    def start(self, now: Nanos) -> list[Effect]: ...
    def handle(self, event: Event, now: Nanos) -> list[Effect]: ...
    def publish(self, topic: str, body: bytes, now: Nanos) -> PublishResult: ...
    def receive(self, peer: str, data: bytes, now: Nanos, lane: Lane) -> list[Effect]: ...
    def flush(self, now: Nanos) -> list[Effect]: ...
    def durable(self, turn: int, now: Nanos) -> list[Effect]: ...
    def ready(self) -> list[str]: ...
    def pull(self, peer: str, bytes_max: int, now: Nanos, in_buffer: int) -> list[Frame]: ...
    def next_deadline(self) -> Nanos: ...
    def queue_bytes(self, peer: str) -> int: ...


CoreT = TypeVar("CoreT", bound=Core)

Make = Callable[[int, list[Record], Nanos], CoreT]
"""Makes a broker from its incarnation, its records, and the time on its clock."""


class Witness(Protocol):
    """Who watches what brokers do, from outside."""

    def delivered(self, broker: str, effect: Deliver) -> None: ...
    def route_changed(self, broker: str, effect: RouteChanged) -> None: ...
    def route_established(self, broker: str, effect: RouteEstablished) -> None: ...
    def deadline_unmeetable(self, broker: str, effect: DeadlineUnmeetable) -> None: ...

    def requirement_changed(self, broker: str, effect: RequirementChanged) -> None: ...

    def direct_links_wanted(self, broker: str, effect: DirectLinksWanted) -> None: ...
    def link_changed(self, broker: str, effect: LinkChanged) -> None: ...
    def path_judged(self, broker: str, effect: PathSuspected | PathTrusted) -> None: ...
    def about_to_send(self, broker: str, core: Core, peers: list[str]) -> None: ...


class Host(Generic[CoreT]):
    """`links` by the neighbour's name, filled in by the builder of the world."""

    def __init__(self, name: str, engine: Engine, clock: SkewedClock, make: Make[CoreT], witness: Witness) -> None:
        self._name = name
        self._engine = engine
        self._clock = clock
        self._make = make
        self._witness = witness
        self._core: CoreT | None = None
        self._incarnation = 0
        self._is_leaving = False
        self._store: dict[tuple[str, bytes], bytes] = {}
        self._past_counters: dict[str, int] = {}
        self._timer_at: Nanos = NEVER  # the true time of the only timer entry that is not stale
        self._timer_reads: Nanos = NEVER  # what the broker's clock says then
        self._last_timer_at: Nanos = -NEVER
        self._timers_in_a_row = 0
        self.links: dict[str, Link] = {}
        self._ends: dict[str, End] = {}
        """This broker's ends of its links, as far as they were used."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def incarnation(self) -> int:
        """How often it was started."""
        return self._incarnation

    @property
    def is_alive(self) -> bool:
        return self._core is not None

    @property
    def is_open(self) -> bool:
        """Whether applications find the broker there: it runs, and is not about to leave."""
        return self._core is not None and not self._is_leaving

    @property
    def core(self) -> CoreT:
        """The broker that runs now; ValueError when none does."""
        if self._core is None:
            raise ValueError(f"broker {self._name} is not running")
        return self._core

    def counters(self) -> dict[str, int]:
        """What the broker counted in all its lives."""
        total = dict(self._past_counters)
        if self._core is not None:
            for name, count in self._core.counters.items():
                total[name] = total.get(name, 0) + count
        return total

    # Life and death

    def start(self) -> None:
        """Start the broker, for the first time or again, from what its store holds."""
        if self._core is not None:
            raise ValueError(f"broker {self._name} is already running")
        self._incarnation += 1
        self._is_leaving = False
        now = self._clock.read(self._engine.now)
        records = [(table, key, value) for (table, key), value in sorted(self._store.items())]
        self._core = self._make(self._incarnation, records, now)
        self._finish(self._core.start(now), now)
        for link in self.links.values():
            link.dial()

    def crash(self) -> None:
        """Lose everything but the store."""
        self._past_counters = self.counters()
        self._core = None
        self._timer_at = self._timer_reads = NEVER
        for link in self.links.values():
            link.hang_up(self._name)

    def forget(self) -> None:
        """Empty the store of a broker that left for good."""
        self._store.clear()

    # Inputs

    def subscribe(self, subscriber: str, topic_filter: str) -> None:
        self._turn(Subscribe(subscriber, topic_filter))

    def unsubscribe(self, subscriber: str, topic_filter: str) -> None:
        self._turn(Unsubscribe(subscriber, topic_filter))

    def leave(self) -> None:
        """Announce that it leaves. The broker continues until the driver stops it, so that the announcement spreads."""
        self._is_leaving = True
        self._turn(Leave())

    def foresee(self, failure: float | None, links: Mapping[str, float]) -> None:
        self._turn(SetFailureRisk(failure, links))

    def configure(self, config: BrokerConfig) -> None:
        self._turn(SetConfig(config))

    def publish(self, topic: str, body: bytes) -> PublishResult:
        """Publish a message; it goes nowhere before the end of the turn."""
        return self.core.publish(topic, body, self._clock.read(self._engine.now))

    def end_turn(self) -> None:
        self._finish([], self._clock.read(self._engine.now))

    def link_up(self, peer: str) -> None:
        self._turn(LinkUp(peer))

    def link_down(self, peer: str) -> None:
        self._turn(LinkDown(peer))

    def path_changed(self, peer: str, rtt_ns: Nanos) -> None:
        self._turn(PathChanged(peer, rtt_ns))

    def standby_changed(self, peer: str, rtt_ns: Nanos) -> None:
        self._turn(StandbyChanged(peer, rtt_ns))

    def receive(self, peer: str, frames: list[Frame]) -> None:
        now = self._clock.read(self._engine.now)
        core = self._core or self.core
        if len(frames) == 1:
            lane, data = frames[0]
            self._finish(core.receive(peer, data, now, lane), now)
            return
        effects: list[Effect] = []
        for lane, data in frames:
            caused = core.receive(peer, data, now, lane)
            effects += caused
            if caused and any(isinstance(effect, Close) and effect.peer == peer for effect in caused):
                break  # the rest came over a connection that is no more
        self._finish(effects, now)

    def pull(self, peer: str, bytes_max: int, in_buffer: int) -> list[Frame]:
        return self.core.pull(peer, bytes_max, self._clock.read(self._engine.now), in_buffer)

    def room_for(self, peer: str) -> None:
        """The send buffer to this neighbour has room again."""
        core = self.core
        self._witness.about_to_send(self._name, core, [peer])
        self.links[peer].end_of(self._name).drain()
        self._arm(core)

    # Turns

    def _turn(self, event: Event) -> None:
        now = self._clock.read(self._engine.now)
        self._finish(self.core.handle(event, now), now)

    def _finish(self, effects: list[Effect], now: Nanos) -> None:
        core = self._core or self.core
        effects += core.flush(now)
        for effect in effects:
            self._carry_out(effect)
        for effect in core.durable(0, now):  # what is saved is durable at once
            self._carry_out(effect)
        peers = core.ready()
        if peers:
            self._witness.about_to_send(self._name, core, peers)
            for peer in peers:
                end = self._ends.get(peer)
                if end is None:
                    end = self._ends[peer] = self.links[peer].end_of(self._name)
                end.drain()
        self._arm(core)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Save(table, key, value):
                self._store[table, key] = value
            case Erase(table, key):
                self._store.pop((table, key), None)
            case Deliver():
                self._witness.delivered(self._name, effect)
            case Close(peer, _):
                self.links[peer].close(self._name)
            case RouteChanged():
                self._witness.route_changed(self._name, effect)
            case RouteEstablished():
                self._witness.route_established(self._name, effect)
            case DeadlineUnmeetable():
                self._witness.deadline_unmeetable(self._name, effect)
            case RequirementChanged():
                self._witness.requirement_changed(self._name, effect)
            case LinkChanged():
                self._witness.link_changed(self._name, effect)
            case DirectLinksWanted():
                self._witness.direct_links_wanted(self._name, effect)
            case BrokersRefused() | RefusedAtBorder() | LaterIncarnationKnown() | NameConflict():
                pass
            case ScopeChanged() | NeighbourSaid():
                pass
            case InterestChanged() | HeldMessageSent():
                pass  # for the service for clients, which is not simulated here
            case PathSuspected() | PathTrusted():
                self._witness.path_judged(self._name, effect)
            case _:
                assert_never(effect)

    # The timer

    def _arm(self, core: CoreT) -> None:
        """Make sure that the timer comes no later than the broker asks; one that comes too early is harmless."""
        reading = core.next_deadline()
        if reading >= self._timer_reads:
            return
        due = self._clock.true_time(reading)
        if due < self._timer_at:
            self._timer_at, self._timer_reads = due, reading
            self._engine.at(due, self._timer, due)

    def _timer(self, due: Nanos) -> None:
        if due != self._timer_at or self._core is None:
            return
        self._timer_at = self._timer_reads = NEVER
        self._check_progress()
        now = self._clock.read(self._engine.now)
        if self._core.next_deadline() <= now:
            self._finish(self._core.handle(Tick(), now), now)
        else:
            self._arm(self._core)

    def _check_progress(self) -> None:
        if self._engine.now != self._last_timer_at:
            self._last_timer_at = self._engine.now
            self._timers_in_a_row = 0
        self._timers_in_a_row += 1
        if self._timers_in_a_row > TIMERS_IN_A_ROW_MAX:
            raise AssertionError(f"broker {self._name} wants a tick at {self._engine.now} ns over and over")
