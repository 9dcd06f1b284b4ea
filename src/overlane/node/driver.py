"""The driver: runs the turns of a broker (`overlane.turn`) in an event loop, with sockets and a disk; decides nothing.

It opens a turn when an input arrives, ends it in the next iteration of the loop, and carries out the result: packets to
clients, records to the store, frames to neighbours. One timer is set to the next deadline of the turns.

An unexpected exception closes the connection whose input caused it. At the end of a turn, where no input is the cause,
it ends the process before anything more is written or sent (`failures`).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, assert_never

from overlane.core.events import Close, Event, Lane
from overlane.core.units import SECOND, Nanos
from overlane.errors import Failure, InDoubt
from overlane.membership.neighbours import NeighbourChanges
from overlane.node.clock import Clock
from overlane.node.failures import Failures
from overlane.node.logs.client_log import ClientLog
from overlane.node.observing import Observing
from overlane.node.security.expiries import Expiries
from overlane.node.security.logins import Login, LoginClient, Logins
from overlane.node.store.durable import Cause, RecordStore, StoreError
from overlane.pubsub.contract.connection import ClientConnection, Phase
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.questions import (
    Authenticate,
    AuthenticateKey,
    CallFunction,
    LoginVerdict,
    PassOn,
    Placed,
    Question,
)
from overlane.pubsub.sessions.domain import Domain
from overlane.turn.client_link import ClientLink, Pipe
from overlane.turn.lingering import Lingering
from overlane.turn.protocols import MQTT
from overlane.turn.reconfigure import Reconfigure, RestartNeeded
from overlane.turn.turn import Outcome, ReceiveResult, Told, Turn

STUCK_S = 2
STUCK_MAX_S = 10
"""A turn that was not ended for so many seconds, though the loop runs: the broker is not ready, and then it ends."""

PASSED, NEEDS_TURN = ReceiveResult.PASSED, ReceiveResult.NEEDS_TURN

_VERDICTS = {
    Login.ACCEPTED: LoginVerdict.IS_USER,
    Login.REFUSED: LoginVerdict.IS_NOT,
    Login.BUSY: LoginVerdict.BUSY,
    Login.UNAVAILABLE: LoginVerdict.UNAVAILABLE,
}


class Links(Protocol):
    """The connections to neighbours, as the driver sees them."""

    def close(self, effect: Close) -> None:
        """The core has given a connection up."""

    def recorded(self, peer: str, size_bytes: int, turn: int) -> None:
        """The interest of a neighbour made records of so many bytes, written in this turn."""

    def written(self, turn: int) -> None:
        """The records of all turns up to this one are on disk."""

    def pump(self) -> None:
        """Send what the core has ready."""

    def reconfigure(self, changes: NeighbourChanges) -> None:
        """Neighbours come, change or go."""


class Driver:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        turn: Turn,
        store: RecordStore,
        logins: Logins | None,
        links: "Callable[[Driver], Links]",
        outlived: Callable[[int, str], None] = lambda _incarnation, _told_by: None,
    ) -> None:
        """`links` makes the broker's side of its links, which hands the driver what neighbours send."""
        self.turn = turn
        self.server = turn.server
        self.core = turn.core
        self.backpressure = turn.backpressure
        self.clock = clock
        self.logins = logins
        self._expiries = Expiries(loop, self._end_expired)
        self.journal = ClientLog()
        self.failures = Failures()
        self.lingering = Lingering(loop)
        self.observing = Observing(loop, self.failures, outlived)
        self._turn_seen = 0
        self._seconds_stuck = 0
        self._loop = loop
        self._store = store
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Nanos = 0
        self._checks: set[asyncio.Task[None]] = set()
        # Bound once, and not for every client.
        self._now, self._soon, self._failed = clock.now, self.end_turn_soon, self._client_failed
        self._links = links(self)
        self.pass_on: Callable[[PassOn], None] = self.cannot_pass_on
        """Passes the connection of a client on to another broker."""
        self.call_function: Callable[[CallFunction], None] | None = None
        """Calls a function of the user, for a rule of mediation."""

    def start(self) -> None:
        self.turn.start(self.clock.now())
        self.end_turn_soon()

    def stop(self) -> None:
        """No more turns: the store is closed for later input."""
        self._is_stopped = True
        self.observing.show()
        if self._timer is not None:
            self._timer.cancel()

    # Inputs

    def tell_core(self, event: Event) -> None:
        """Something for the core that comes from neither clients nor neighbours, or cannot be refused."""
        try:
            self.handle(event)
        except Exception as error:
            self.failures.fatal(f"the core could not handle {type(event).__name__}", error)

    def handle(self, event: Event) -> None:
        """Something for the core that comes of a neighbour, which is to be closed if it fails."""
        self.turn.handle(event, self.clock.now())
        self.end_turn_soon()

    def received(self, peer: str, data: bytes, lane: Lane) -> None:
        """A neighbour has sent something. What only passes leaves at once: a turn would do nothing for it."""
        try:
            now = self.clock.now()
            heard = self.turn.receive(peer, data, now, lane)
            if heard is NEEDS_TURN or self._is_stopped:
                self.end_turn_soon()
                return
            if isinstance(heard, Outcome):
                self._carry_out(heard, now)
                self._arm(now)
            self._links.pump()
            sent = self.turn.links_have_passed(now)
            if sent is not None:
                self._arm(now) if sent is PASSED else self.end_turn_soon()
        except Exception as error:
            self.failures.fatal(f"what {peer} sent", error)

    def links_have_room(self) -> None:
        """Something has left between turns, or may leave."""
        self.turn.touch_core()
        self.end_turn_soon()

    def reconfigure(self, event: Reconfigure) -> None:
        """A new configuration holds from now on; RestartNeeded, and nothing has changed."""
        try:
            changes = self.turn.reconfigure(event, self.clock.now())
            self._links.reconfigure(changes)
        except RestartNeeded:
            raise
        except Exception as error:
            self.failures.fatal("a configuration was half taken over", error)
        self.end_turn_soon()

    def attach(
        self, pipe: Pipe, peer: Peer, since_ns: Nanos, is_turned_away: bool = False, protocol: str = MQTT
    ) -> ClientLink:
        """A client has connected; it came then."""
        return ClientLink(
            self._loop,
            self.turn.protocol(protocol),
            self._now,
            self._soon,
            pipe,
            peer,
            since_ns,
            self.backpressure,
            self._failed,
            self.lingering,
            is_turned_away,
        )

    def written(self) -> asyncio.Future[None]:
        """Done when all inputs of the server so far are on disk."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.turn.when_written(future)
        self.end_turn_soon()
        return future

    def store_changed(self, error: StoreError | None) -> None:
        self.server.store_is_failing(error is not None, can_erase=error is not None and error.cause is Cause.FULL)
        self.end_turn_soon()

    def mirrors_changed(self, has_mirror: bool) -> None:
        """Whether another host has a copy of this broker."""
        self.server.state.lacks_mirror = not has_mirror

    # Failures

    def look(self) -> None:
        """About once a second: whether turns are ended."""
        is_same = self.turn.is_open and not self._is_stopped and self.turn.number == self._turn_seen
        self._turn_seen = self.turn.number
        self._seconds_stuck = self._seconds_stuck + 1 if is_same else 0
        if self._seconds_stuck >= STUCK_MAX_S:
            self.failures.fatal("turns are not ended any more", TimeoutError(f"{STUCK_MAX_S} s"))

    @property
    def is_stuck(self) -> bool:
        """Whether an input has waited so long for the end of a turn that no client is being served."""
        return self._seconds_stuck >= STUCK_S

    def _client_failed(self, link: ClientLink, error: Exception) -> None:
        """What came from one client, or is to be sent to it, met with a fault of ours."""
        self.isolate("client", link.connection, error)

    def isolate(self, kind: str, connection: ClientConnection, error: Exception) -> None:
        """End a client for a fault of ours; the process, if something is half done that matters."""
        if isinstance(error, InDoubt):
            self.failures.fatal(f"{kind}: {error}", error)
        try:
            _link_of(connection).end_for_failure(kind, error)
        except Exception as second:
            self.failures.fatal(f"{kind} could not be closed", second)
        self.end_turn_soon()

    def _pipe_failed(self, link: ClientLink, error: Exception) -> None:
        """Data was not passed to a client's transport: nothing must be sent after it."""
        link.break_off()
        self.failures.isolated(Failure("transport", link.connection.peer.address, error))

    # Turns

    def end_turn_soon(self) -> None:
        if not self.turn.is_open and not self._is_stopped:
            self.turn.open(self.clock.now())
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        if self._is_stopped:
            return
        try:
            now = self.clock.now()
            self._carry_out(self.turn.end(now), now)
            self._arm(now)
        except Exception as error:
            self.failures.fatal("a turn could not be ended", error)

    def _committed(self, batch: int, error: StoreError | None) -> None:
        if self._is_stopped:
            return
        if error is not None:
            self.failures.fatal("the store has stopped", error)
        try:
            now = self.clock.now()
            self._carry_out(self.turn.committed(batch, now), now)
            self._arm(now)
        except Exception as failed:
            self.failures.fatal("what waited for the disk could not be sent", failed)

    def _carry_out(self, outcome: Outcome, now: Nanos) -> None:
        if not outcome.is_plain:
            self._carry_out_first(outcome)
        if outcome.delivered:
            self.observing.delivered(outcome.delivered)
        for connection, chunks, waits in outcome.packets:
            link = connection.driver
            assert isinstance(link, ClientLink)
            try:
                link.send(chunks, waits)
            except Exception as error:
                self._pipe_failed(link, error)
        if outcome.records is not None:
            done = partial(self._committed, outcome.batch)
            self._store.submit(outcome.records, done, needs_mirror=outcome.needs_mirror)
        if outcome.lets_links_send:
            self._links.pump()
            self.backpressure.let_go()
            self.turn.links_have_sent()
        if not outcome.is_plain:
            self._carry_out_last(outcome, now)

    def _carry_out_first(self, outcome: Outcome) -> None:
        for failure in outcome.failures:
            self.failures.isolated(failure)
        self._tell(outcome.told)
        self._release(outcome.released)
        _resolve(outcome.written)
        if outcome.turn_written is not None:
            self._links.written(outcome.turn_written)

    def _carry_out_last(self, outcome: Outcome, now: Nanos) -> None:
        for peer, size_bytes in outcome.recorded.items():
            self._links.recorded(peer, size_bytes, outcome.turn)
        for question in outcome.questions:
            self._find_answer(question)
        if outcome.notices:
            self.journal.write(outcome.notices, outcome.notices_left_out, now)
        if outcome.needs_turn:
            self.end_turn_soon()

    def _tell(self, effects: Sequence[Told]) -> None:
        for effect in effects:
            if isinstance(effect, Close):
                self._links.close(effect)
            else:
                self.observing.tell(effect)

    def _release(self, connections: Sequence[ClientConnection]) -> None:
        for connection in connections:
            link = _link_of(connection)
            try:
                link.release()
            except Exception as error:
                self._pipe_failed(link, error)

    # Who is it, and where is its session?

    def _find_answer(self, question: Question) -> None:
        match question:
            case Authenticate() | AuthenticateKey():
                self._check(question)
            case Placed(connection, found):
                _link_of(connection).placed(found)
            case PassOn():
                self.pass_on(question)
            case CallFunction():
                if self.call_function is not None:
                    self.call_function(question)
            case _:
                assert_never(question)

    def _check(self, question: Authenticate | AuthenticateKey) -> None:
        task = self._loop.create_task(self._find_out(question))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)
        task.add_done_callback(lambda done: self.failures.look_at(done, "a login"))

    async def _find_out(self, question: Authenticate | AuthenticateKey) -> None:
        verdict, user = LoginVerdict.IS_ANONYMOUS, ""
        if self.logins is not None:
            try:
                if isinstance(question, AuthenticateKey):
                    user = self.logins.user_of_key(question.nkey, question.challenge, question.signature)
                    verdict = LoginVerdict.IS_USER if user else LoginVerdict.IS_NOT
                else:
                    peer = question.connection.peer
                    client = LoginClient(question.client_id, peer.address, peer.listener)
                    login, user, until_s = await self.logins.log_in(question.user, question.password, client)
                    verdict = _VERDICTS[login]
                    if until_s is not None:
                        self._expiries.add(question.connection, until_s)
            except Exception as error:
                self.isolate("login", question.connection, error)
                return
        _link_of(question.connection).authenticated(verdict, user)

    def _end_expired(self, connection: ClientConnection) -> None:
        if connection.phase is Phase.PASSED_ON:
            _link_of(connection).break_off()
            return
        self.server.pubsub.end_expired(connection, self.clock.now())
        self.end_turn_soon()

    def follow_domain(self, domain: Domain) -> None:
        """The other brokers of the domain are these from now on."""
        self.server.lookup.follow(domain, self.clock.now())
        self.end_turn_soon()

    def publish_own(self, topic: str, payload: bytes) -> None:
        """A retained message of the broker itself, for its own clients."""
        self.server.pubsub.publish_own(topic, payload, self.clock.now())
        self.end_turn_soon()

    def cannot_pass_on(self, placement: PassOn, told: str = "connections are not passed on here") -> None:
        self.server.cannot_pass_on(placement.connection, told)
        self.end_turn_soon()

    # The timer

    def _arm(self, now: Nanos) -> None:
        due = self.turn.next_deadline()
        if self._timer is not None:
            if now < self._timer_at <= due:
                return  # it comes early enough, and one too many does no harm
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_later(max(0, due - now) / SECOND, self._wake)

    def _wake(self) -> None:
        self._timer = None
        try:
            self.turn.tick(self.clock.now())
        except Exception as error:
            self.failures.fatal("a timer", error)
        self.end_turn_soon()


def _link_of(connection: ClientConnection) -> ClientLink:
    link = connection.driver
    assert isinstance(link, ClientLink)
    return link


def _resolve(futures: Sequence[object]) -> None:
    for future in futures:
        assert isinstance(future, asyncio.Future)
        if not future.done():
            future.set_result(None)
