"""The driver: turns the loop's events into turns of the MQTT server and the overlay's core, and decides nothing.

A turn is everything that came in one iteration of the loop. At its end the records of the turn go to the store as one
batch, what does not depend on them is sent, and the rest when they are on disk. One timer is set to what server and
core want to be woken for next. What a neighbour sent for others alone needs no turn: it leaves at once.
"""

import asyncio
import logging
from typing import assert_never

from overlane.core.broker import Broker
from overlane.core.events import (
    Close,
    DeadlineUnmeetable,
    Deliver,
    Effect,
    Erase,
    Event,
    LinkChanged,
    RoomAgain,
    RouteChanged,
    RouteEstablished,
    Save,
    Tick,
)
from overlane.core.units import SECOND, Nanos
from overlane.mqtt import way
from overlane.mqtt.connection import Peer
from overlane.mqtt.handshake import Authenticate, Verdict
from overlane.mqtt.server import Server
from overlane.node.clientlink import ClientLink, Pipe
from overlane.node.clock import Clock
from overlane.node.journal import Journal
from overlane.node.logins import Login, Logins
from overlane.node.overlay import Overlay
from overlane.node.recordfile import Name
from overlane.node.store import Cause, RecordStore, StoreError
from overlane.node.telemetry import Observer
from overlane.node.uplink import CoreUplink

log = logging.getLogger("overlane.node")

SHOWN_WITHIN_S = 0.02
SHOWN_TOGETHER = 64
"""How long, and how many, deliveries wait to be shown to observers: none of them is in a hurry."""

_VERDICTS = {Login.ACCEPTED: Verdict.IS_USER, Login.REFUSED: Verdict.IS_NOT, Login.BUSY: Verdict.BUSY}


class Driver:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        server: Server,
        core: Broker,
        uplink: CoreUplink,
        store: RecordStore,
        logins: Logins | None,
    ) -> None:
        self.server = server
        self.core = core
        self.clock = clock
        self.logins = logins
        self.journal = Journal()
        self._loop = loop
        self._uplink = uplink
        self._store = store
        self._is_turn_open = False
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Nanos = 0
        self._core_due: Nanos = 0
        self._checks: set[asyncio.Task[None]] = set()
        self._commits_pending = 0
        self._delivered: list[Deliver] = []
        """What the observers have not been shown yet."""
        self._held: list[ClientLink] = []
        """Who waits for the batch of records submitted last."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits for which turn of the server to be on disk."""
        self._stopped: set[ClientLink] = set()
        """Whose messages find no room on their way to other brokers."""
        self.overlay: Overlay | None = None
        self.observers: list[Observer] = []

    def start(self) -> None:
        now = self.clock.now()
        self._uplink.effects += self.core.start(now)
        self.end_turn_soon()

    def stop(self) -> None:
        """No more turns: whatever comes now would find the store closed."""
        self._is_stopped = True
        self._show()
        if self._timer is not None:
            self._timer.cancel()

    def tell_core(self, event: Event) -> None:
        """Something for the core that comes from neither clients nor neighbours."""
        self._uplink.effects += self.core.handle(event, self.clock.now())
        self.end_core_turn_soon()

    def attach(self, pipe: Pipe, peer: Peer, since_ns: Nanos) -> ClientLink:
        """A client has connected; it came then."""
        return ClientLink(
            self._loop, self.server, self.clock.now, self.end_turn_soon, pipe, peer, since_ns, self._stopped
        )

    def written(self) -> asyncio.Future[None]:
        """Done when all that the server was told so far is on disk."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((self.server.state.turn, future))
        self.end_turn_soon()
        return future

    @property
    def is_quiet(self) -> bool:
        """Whether everything that was said is on disk and on its way."""
        return not self._is_turn_open and not self._commits_pending

    def store_changed(self, error: StoreError | None) -> None:
        self.server.store_is_failing(error is not None, can_erase=error is not None and error.cause is Cause.FULL)
        self.end_turn_soon()

    # Turns

    def end_core_turn_soon(self) -> None:
        """The core was told something."""
        self._uplink.is_touched = True
        self.end_turn_soon()

    def heard(self) -> None:
        """A neighbour has told the core something. What only passes leaves at once: a turn would do nothing for it.

        One message for clients here does not wait for others to share a turn with either, where nothing is stored.
        """
        effects = self._uplink.effects
        if self._is_turn_open or self._is_stopped or not self.core.is_calm:
            self.end_core_turn_soon()
            return
        if effects and not self._is_handed_over(effects):
            self.end_core_turn_soon()
            return
        if self.overlay is not None:
            self.overlay.pump()
        due = self.core.next_deadline()
        if due < self._core_due:
            now = self.clock.now()
            if due <= now:
                self.end_core_turn_soon()
            else:
                self._core_due = due
                self._arm(now)

    def _is_handed_over(self, effects: list[Effect]) -> bool:
        """Whether all there was to carry out was one message, for clients that have it now."""
        effect = effects[0]
        if len(effects) > 1 or type(effect) is not Deliver:
            return False
        now = self.clock.now()
        effects.clear()
        self.server.deliver(effect, now)
        self._show_later(effect)
        if self.server.has_records or self.server.has_words:
            self._is_turn_open = True
            self._end_turn()
            return True
        self._send({}, False, now)
        self._arm(now)
        return True

    def end_turn_soon(self) -> None:
        if not self._is_turn_open and not self._is_stopped:
            self._is_turn_open = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        if self._is_stopped:
            return
        now = self.clock.now()
        self._is_turn_open = False
        changes: dict[Name, bytes | None] = {}
        if self.server.gate.has_room_again(now):
            self._uplink.effects += self.core.handle(RoomAgain(), now)
            self._uplink.is_touched = True
        is_core_turn = self._uplink.is_touched or now >= self._core_due
        server = self.server
        if is_core_turn:
            self._end_core_turn(changes, now)
        for effect in server.take_effects():
            self._carry_out(effect, changes, now)
        self._send(changes, is_core_turn, now)
        if server.has_words:
            for question in server.take_questions():
                self._check(question)
            notices, left_out = server.take_notices()
            if notices:
                self.journal.write(notices, left_out, now)
        self._arm(now)

    def _end_core_turn(self, changes: dict[Name, bytes | None], now: Nanos) -> None:
        """Left out where only messages between clients here have passed: that is most turns of a busy broker."""
        self._uplink.is_touched = False
        effects = self._uplink.effects
        effects += self.core.flush(now)
        for effect in effects:
            self._carry_out(effect, changes, now)
        effects.clear()

    def _carry_out(self, effect: Effect, changes: dict[Name, bytes | None], now: Nanos) -> None:
        match effect:
            case Deliver():
                self.server.deliver(effect, now)
                self._show_later(effect)
            case Save(table, key, value):
                changes[table, key] = value
            case Erase(table, key):
                changes[table, key] = None
            case LinkChanged() | RouteChanged() | DeadlineUnmeetable():
                self._tell(effect)
            case Close():
                if self.overlay is not None:
                    self.overlay.close(effect)
            case RouteEstablished():
                pass
            case _:
                assert_never(effect)

    def _show_later(self, effect: Deliver) -> None:
        """Whoever observes can wait; clients and neighbours that wait for the end of the turn should not."""
        if not self._delivered:
            self._loop.call_later(SHOWN_WITHIN_S, self._show)
        self._delivered.append(effect)
        if len(self._delivered) == SHOWN_TOGETHER:
            self._loop.call_soon(self._show)

    def _show(self) -> None:
        delivered, self._delivered = self._delivered, []
        for observer in self.observers:
            for effect in delivered:
                observer.delivered(effect)

    def _tell(self, effect: LinkChanged | RouteChanged | DeadlineUnmeetable) -> None:
        match effect:
            case LinkChanged(peer, state):
                log.info("link to %s is %s", peer, state)
            case RouteChanged():
                log.info("route to %s moved: %s", ", ".join(effect.destinations), effect.cause)
            case DeadlineUnmeetable(_, destination, latency_ns):
                log.warning("no route to %s meets the deadline: the best takes %d us", destination, latency_ns // 1000)
            case _:
                assert_never(effect)
        for observer in self.observers:
            observer.happened(effect)

    def _send(self, changes: dict[Name, bytes | None], is_core_turn: bool, now: Nanos) -> None:
        held: list[ClientLink] = [] if changes else self._held
        for connection in self.server.take_touched():
            chunks, waits = connection.taken()
            link = connection.driver
            assert isinstance(link, ClientLink)
            waits = waits and bool(changes or self._commits_pending)
            if waits:
                held.append(link)
            link.send(chunks, waits)
        turn, server_turn = self.core.turn, self.server.last_turn
        if changes:
            self._commits_pending += 1
            self._held = held
            self._store.submit(changes, lambda error: self._committed(turn, server_turn, held, error))
        elif not self._commits_pending:
            self._server_durable(server_turn, now)
            if is_core_turn:
                self._durable(turn, now)
        if is_core_turn:
            self._pump()

    def _committed(self, turn: int, server_turn: int, held: list[ClientLink], error: StoreError | None) -> None:
        self._commits_pending -= 1
        if error is not None:
            return
        for link in held:
            link.release()
        now = self.clock.now()
        # When no other commit is under way, turns that ended meanwhile had nothing to write.
        self._server_durable(server_turn if self._commits_pending else self.server.last_turn, now)
        self._durable(turn if self._commits_pending else self.core.turn, now)
        self._pump()
        self._arm(now)

    def _pump(self) -> None:
        """What goes out to neighbours is watched from then on: the core may want to be woken earlier."""
        if self.overlay is not None:
            self.overlay.pump()
        if self._stopped:
            for link in [one for one in self._stopped if way.is_free(self._uplink, one.connection)]:
                link.go()
        self._core_due = self.core.next_deadline()

    def _server_durable(self, turn: int, now: Nanos) -> None:
        if self.server.durable(turn, now):
            self.end_turn_soon()
        if self._waiting:
            done = [future for until, future in self._waiting if until <= turn and not future.done()]
            self._waiting = [one for one in self._waiting if one[0] > turn and not one[1].done()]
            for future in done:
                future.set_result(None)

    def _durable(self, turn: int, now: Nanos) -> None:
        for effect in self.core.durable(turn, now):
            self._carry_out(effect, {}, now)

    # Who is it?

    def _check(self, question: Authenticate) -> None:
        task = self._loop.create_task(self._find_out(question))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _find_out(self, question: Authenticate) -> None:
        verdict = Verdict.IS_ANONYMOUS
        if self.logins is not None:
            verdict = _VERDICTS[await self.logins.check(question.user, question.password)]
        link = question.connection.driver
        assert isinstance(link, ClientLink)
        link.authenticated(verdict)

    # The timer

    def _arm(self, now: Nanos) -> None:
        due = min(self.server.next_deadline(), self._core_due)
        if self._timer is not None:
            if self._timer_at <= due and self._timer_at > now:
                return  # it comes early enough, and one too many does no harm
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_later(max(0, due - now) / SECOND, self._wake)

    def _wake(self) -> None:
        now = self.clock.now()
        self._timer = None
        self.server.tick(now)
        if self._core_due <= now:
            self.tell_core(Tick())
        self.end_turn_soon()
