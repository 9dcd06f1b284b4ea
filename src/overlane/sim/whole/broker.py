"""One whole broker under virtual time: its turns, run as `node.driver` runs them, on a simulated disk and network.

It is to `node.driver` what `sim.host` was to the core alone, and decides as little. A turn is ended some microseconds
after its first input, so that turns have several inputs; batches are committed when the disk says so, and other turns
go on meanwhile. A crash, between any two events, leaves the disk and nothing else. Whatever a broker reports as an
internal error ends the run: there is nobody to hide it from.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from overlane.core.config import BrokerConfig
from overlane.core.events import (
    Close,
    Event,
    LaterIncarnationKnown,
    LinkDown,
    LinkUp,
    PathChanged,
    ScopeChanged,
    ScopeDigest,
    StandbyChanged,
)
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.errors import OverlaneError
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.questions import Authenticate, AuthenticateKey, CallFunction, LoginVerdict, PassOn, Placed
from overlane.pubsub.sessions.domain import ALONE, Domain
from overlane.pubsub.state import Settings
from overlane.sim.clock import SkewedClock
from overlane.sim.engine import Engine
from overlane.sim.line import Frame
from overlane.sim.link import Link
from overlane.sim.whole.disk import Disk, SimulatedStore, Trouble
from overlane.sim.whole.wire import Wire
from overlane.turn.assembly import assemble
from overlane.turn.client_link import ClientLink
from overlane.turn.lingering import Lingering
from overlane.turn.reconfigure import Reconfigure, reconfigured
from overlane.turn.turn import Outcome, ReceiveResult, Turn

TIMERS_IN_A_ROW_MAX = 1_000


class InternalError(OverlaneError):
    """A broker has isolated a failure of its own, or would have ended its process."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a broker's machine is: how long a turn stays open, and what a write or a sync takes."""

    turn_ns: Nanos
    disk_ns: tuple[Nanos, Nanos]


class _Timer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualLoop:
    """What client connections ask of an event loop (`turn.timers`), for one life of a broker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.is_over = False

    def call_soon(self, callback: Callable[[], object], /) -> _Timer:
        return self.call_later(0.0, callback)

    def call_later(self, delay: float, callback: Callable[[], object], /) -> _Timer:
        timer = _Timer(callback)
        self._engine.at(self._engine.now + int(delay * SECOND), self._run, timer)
        return timer

    def _run(self, timer: _Timer) -> None:
        if timer.callback is not None and not self.is_over:
            timer.callback()


class _Life:
    """What ends with the process."""

    def __init__(self, broker: "WholeBroker", turn: Turn, store: SimulatedStore) -> None:
        self.turn = turn
        self.store = store
        self.loop = VirtualLoop(broker.engine)
        self.lingering = Lingering(self.loop)
        self.wires: list[Wire] = []
        self.passed_on: list[Wire] = []
        """Of clients whose connections end at another broker, and break when this one is gone."""
        self.links: list[ClientLink] = []
        self.timer_at: Nanos = NEVER
        self.timer_reads: Nanos = NEVER
        """What the broker asked for: its clock reads that at `timer_at`, or a little more."""


class WholeBroker:
    """`links` by the neighbour's name; whoever builds the world fills it in. `hook` is called after each turn."""

    def __init__(
        self,
        config: BrokerConfig,
        settings: Settings,
        engine: Engine,
        clock: SkewedClock,
        pace: Pace,
        luck: Random,
        hook: Callable[["WholeBroker"], None] = lambda _: None,
    ) -> None:
        self.name = config.name
        self.engine = engine
        self.links: dict[str, Link] = {}
        self.disk = Disk()
        self._config = config
        self._settings = settings
        self._clock = clock
        self.pace = pace
        self._luck = luck
        self._hook = hook
        self.on_scope_changed: Callable[[ScopeDigest], None] = lambda _: None
        self._life: _Life | None = None
        self._domain = ALONE
        self._find: Callable[[str], WholeBroker] | None = None
        self._clients = 0
        self._timers_at: Nanos = -NEVER
        self._timers_in_a_row = 0

    @property
    def is_alive(self) -> bool:
        return self._life is not None

    @property
    def life(self) -> _Life:
        if self._life is None:
            raise ValueError(f"broker {self.name} is not running")
        return self._life

    @property
    def turn(self) -> Turn:
        return self.life.turn

    def now(self) -> Nanos:
        return self._clock.read(self.engine.now)

    # Life and death

    def start(self) -> None:
        store = SimulatedStore(self.engine, self.disk, self._luck, self.pace.disk_ns, self._committed, self._store_is)
        turn = assemble(
            self._config, self._settings, self.disk.incarnation, store.records(), self.now(), self._fresh_id, instance=1
        )
        self._life = _Life(self, turn, store)
        turn.server.lookup.follow(self._domain, self.now())
        turn.start(self.now())
        self._end_turn_soon()
        self._look_at_disk()
        for link in self.links.values():
            link.dial()

    def crash(self, loses_power: bool) -> None:
        """Lose everything but what the disk keeps."""
        life, self._life = self.life, None
        life.loop.is_over = True
        life.store.gone()
        if loses_power:
            self.disk.lose_power(self._luck)
        else:
            self.disk.kill()
        for link in self.links.values():
            link.hang_up(self.name)
        for wire in life.wires:
            wire.forget_broker()
        for wire in life.passed_on:
            wire.break_off()

    def set_trouble(self, trouble: Trouble | None) -> None:
        """The disk fills up, breaks, or is well again."""
        self.disk.trouble = trouble
        if self._life is not None:
            self._look_at_disk()

    def _look_at_disk(self) -> None:
        life = self.life
        life.loop.call_later(0.1, life.store.look)

    def _fresh_id(self) -> str:
        self._clients += 1
        return f"{self.name}-{self._clients}"

    def reconfigure(self, event: Reconfigure) -> None:
        """Take a new configuration up now, or with the next start. Addresses are not simulated: links exist or not."""
        if self._life is None:
            self._config = reconfigured(self._config, event)
        else:
            changes = self._life.turn.reconfigure(event, self.now())
            self._config = self._life.turn.core.config
            self._end_turn_soon()
            assert changes.set.keys() <= self.links.keys()
        self._settings = event.settings
        for peer, link in self.links.items():
            link.configure(self.name, is_wanted=peer in self._config.link_failure)

    # Clients

    def share_clients(self, domain: Domain, find: "Callable[[str], WholeBroker]") -> None:
        """From the next start on, with these brokers, whom `find` knows by name."""
        self._domain, self._find = domain, find

    def accept(self, wire: Wire, via: str = "") -> ClientLink:
        """A client has dialled, or another broker has passed its connection on."""
        life = self.life
        link = ClientLink(
            life.loop,
            life.turn.server,
            self.now,
            self._end_turn_soon,
            wire,
            Peer(f"127.0.0.1:{len(life.wires) + 1}", via=via),
            self.now(),
            life.turn.backpressure,
            _raise_client_failure,
            life.lingering,
        )
        wire.open(link)
        life.wires.append(wire)
        life.links.append(link)
        return link

    def _place(self, placement: Placed | PassOn) -> None:
        link = _link_of(placement.connection.driver)
        if isinstance(placement, Placed):
            found = placement.found
            self.life.loop.call_soon(lambda: link.placed(found))
        else:
            self.life.loop.call_soon(lambda: self._pass_on(placement, link))

    def _pass_on(self, placement: PassOn, link: ClientLink) -> None:
        life, wire, connection = self.life, link.pipe, placement.connection
        assert self._find is not None
        assert isinstance(wire, Wire)
        target = self._find(placement.broker)
        if not target.is_alive:
            life.turn.server.cannot_pass_on(connection, f"{target.name} is gone")
            self._end_turn_soon()
            return
        more = life.turn.server.passing_on(connection)
        if more is None:
            return
        life.wires.remove(wire)
        life.passed_on.append(wire)
        link.lost()
        target.accept(wire, self.name).received(placement.connect + more)
        wire.resume_reading()

    def _answer(self, question: Authenticate | AuthenticateKey) -> None:
        link = question.connection.driver
        assert isinstance(link, ClientLink)
        self.life.loop.call_soon(lambda: link.authenticated(LoginVerdict.IS_ANONYMOUS))

    # Neighbours (link.Station)

    def link_up(self, peer: str) -> None:
        self._handle(LinkUp(peer))

    def link_down(self, peer: str) -> None:
        self._handle(LinkDown(peer))

    def path_changed(self, peer: str, rtt_ns: Nanos) -> None:
        self._handle(PathChanged(peer, rtt_ns))

    def standby_changed(self, peer: str, rtt_ns: Nanos) -> None:
        self._handle(StandbyChanged(peer, rtt_ns))

    def _handle(self, event: Event) -> None:
        self.turn.handle(event, self.now())
        self._end_turn_soon()

    def receive(self, peer: str, frames: list[Frame]) -> None:
        for lane, data in frames:
            if self._life is None:
                return
            turn, now = self._life.turn, self.now()
            heard = turn.receive(peer, data, now, lane)
            if heard is ReceiveResult.NEEDS_TURN:
                self._end_turn_soon()
                continue
            if isinstance(heard, Outcome):
                self._carry_out(heard)
            self._pump()
            if turn.links_have_passed(now) is ReceiveResult.NEEDS_TURN:
                self._end_turn_soon()
            self._arm()

    def pull(self, peer: str, bytes_max: int, in_buffer: int) -> list[Frame]:
        return self.turn.core.pull(peer, bytes_max, self.now(), in_buffer)

    def room_for(self, peer: str) -> None:
        """The send buffer to this neighbour has room again."""
        self.links[peer].end_of(self.name).drain()
        self.turn.touch_core()
        self._end_turn_soon()

    def _pump(self) -> None:
        for peer in self.turn.core.ready():
            self.links[peer].end_of(self.name).drain()

    # Turns

    def _end_turn_soon(self) -> None:
        life = self.life
        if not life.turn.is_open:
            now = self.engine.now
            life.turn.open(self._clock.read(now))
            self.engine.at(now + self.pace.turn_ns, self._end_turn, life)

    def _end_turn(self, life: _Life) -> None:
        if life is self._life:
            self._carry_out(life.turn.end(self.now()))
            self._hook(self)
            self._arm()

    def _committed(self, batch: int) -> None:
        self._carry_out(self.turn.committed(batch, self.now()))
        self._arm()

    def _store_is(self, trouble: Trouble | None) -> None:
        self.turn.server.store_is_failing(trouble is not None, can_erase=trouble in (Trouble.FULL, Trouble.RESERVE))
        self._end_turn_soon()

    def _carry_out(self, outcome: Outcome) -> None:
        life = self.life
        for failure in outcome.failures:
            raise InternalError(f"{failure.kind} {failure.source} at {self.name}") from failure.error
        for effect in outcome.told:
            if isinstance(effect, Close):
                self.links[effect.peer].close(self.name)
            elif isinstance(effect, LaterIncarnationKnown):
                raise InternalError(f"{self.name} is told of a later life of itself")
            elif isinstance(effect, ScopeChanged):
                self.on_scope_changed(effect.digest)
        for connection in outcome.released:
            _link_of(connection.driver).release()
        for connection, chunks, waits in outcome.packets:
            _link_of(connection.driver).send(chunks, waits)
        if outcome.records is not None:
            life.store.submit(outcome.batch, outcome.records)
        if outcome.lets_links_send:
            self._pump()
            life.turn.backpressure.let_go()
            life.turn.links_have_sent()
        for question in outcome.questions:
            if isinstance(question, Authenticate | AuthenticateKey):
                self._answer(question)
            elif not isinstance(question, CallFunction):
                self._place(question)
        if outcome.needs_turn:
            self._end_turn_soon()

    # The timer

    def _arm(self) -> None:
        life = self.life
        reading = life.turn.next_deadline()
        if reading >= life.timer_reads:
            return
        due = self._clock.true_time(reading)
        if due < life.timer_at:
            life.timer_at, life.timer_reads = due, reading
            self.engine.at(due, self._wake, (life, due))

    def _wake(self, entry: tuple[_Life, Nanos]) -> None:
        life, due = entry
        if life is not self._life or due != life.timer_at:
            return
        life.timer_at = life.timer_reads = NEVER
        self._check_progress()
        if life.turn.next_deadline() <= self.now():
            life.turn.tick(self.now())
            self._end_turn_soon()
        else:
            self._arm()

    def _check_progress(self) -> None:
        if self.engine.now != self._timers_at:
            self._timers_at = self.engine.now
            self._timers_in_a_row = 0
        self._timers_in_a_row += 1
        if self._timers_in_a_row > TIMERS_IN_A_ROW_MAX:
            raise InternalError(f"{self.name} wants to be woken at {self.engine.now} ns over and over")


def _link_of(driver: object) -> ClientLink:
    assert isinstance(driver, ClientLink)
    return driver


def _raise_client_failure(link: ClientLink, error: Exception) -> None:
    raise InternalError(f"what {link.connection.peer.address} sent") from error
