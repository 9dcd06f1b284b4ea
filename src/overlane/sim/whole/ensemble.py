"""A ZooKeeper ensemble in virtual time, with its real weaknesses: replicas that lag, answers that are lost, sessions
that expire, watches that come late.

All transactions are agreed upon in one order (`log`). Each server applies them in that order, some time later. A client
is connected to one server: it reads there what that one has applied, so a read may be stale; a transaction, or a
`Sync`, is answered when its server has applied everything up to it. So a client sees its own writes, and never an older
state than it has seen before: it is not connected to a server that lags behind that.

Requests of a client are carried out and answered in their order. Watches are told on their own way, and may come before
or after answers. When a connection breaks, requests under way may have been carried out or not, and watches are gone;
the client connects to some server again after a moment. A session ends when its client was not connected for
SESSION_MAX, and its ephemeral nodes with it. While fewer than half of the servers run, nothing is answered.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TypeAlias

from overlane.coordination.contract import (
    Answer,
    Answered,
    Connected,
    Done,
    Event,
    Request,
    Suspended,
    Sync,
    Transaction,
    Unknown,
)
from overlane.coordination.znodes import Tree, Watch, ZooKeeperClient
from overlane.core.units import MS, SECOND, US, Nanos
from overlane.sim.engine import Engine
from overlane.sim.random_streams import between, one_of

SERVERS = 3
SESSION_MAX: Nanos = 1 * SECOND
"""Less than that of real brokers, as chaos is short."""
LATENCY = 200 * US, 4 * MS
LAG = 1 * MS, 30 * MS
RECONNECT = 5 * MS, 120 * MS
PATIENCE: Nanos = 10 * SECOND
PAUSE_MAX: Nanos = 30 * SECOND
"""Where nothing has answered for longer than PATIENCE, pauses between attempts grow up to this."""

Entry: TypeAlias = tuple[int, Transaction | None]
"""A session, and its transaction; None: it begins, or ends if it was there."""


class EnsembleServer:
    """One replica."""

    def __init__(self, engine: Engine, luck: Random) -> None:
        self._engine = engine
        self._luck = luck
        self._tree = Tree()
        self._sessions: dict[int, ZooKeeperClient] = {}
        self._log: list[Entry] = []
        self.applied = 0
        self.is_up = True
        self.extra_lag_ns: Nanos = 0
        self.connections: dict[int, Connection] = {}
        """By session."""
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def append(self, entry: Entry) -> None:
        """Something was agreed upon, of which this server hears soon."""
        self._log.append(entry)
        lag = between(self._luck, *LAG) + self.extra_lag_ns
        self._engine.at(self._engine.now + lag, self._apply, len(self._log))

    def when_applied(self, index: int, then: Callable[[], None]) -> None:
        if index <= self.applied:
            then()
        else:
            self._waiting.append((index, then))

    def read(self, session: int, request: Request) -> Answer:
        return self._tree.handle(self._sessions[session], request)[0]

    def forget_watches(self, session: int) -> None:
        if session in self._sessions:
            self._sessions[session].watches.clear()

    def _apply(self, until: int) -> None:
        while self.applied < until:
            session, transaction = self._log[self.applied]
            self.applied += 1
            fired: list[tuple[int, Watch]] = []
            if transaction is not None:
                fired = self._tree.handle(self._sessions[session], transaction)[1]
            elif session not in self._sessions:
                self._sessions[session] = self._tree.open_session()
            else:
                del self._sessions[session]
                fired = self._tree.end_session(session)
            for watcher, watch in fired:
                if (connection := self.connections.get(watcher)) is not None:
                    connection.tell(watch)
        ready = [then for index, then in self._waiting if index <= self.applied]
        self._waiting = [one for one in self._waiting if one[0] > self.applied]
        for then in ready:
            then()


class Ensemble:
    def __init__(self, engine: Engine, luck: Random) -> None:
        self.engine = engine
        self.luck = luck
        self.tree = Tree()
        """What has been agreed upon."""
        self.servers = [EnsembleServer(engine, luck) for _ in range(SERVERS)]
        self._sessions: dict[int, ZooKeeperClient] = {}
        self._connections: list[Connection] = []
        self.length = 0
        self.on_write: Callable[[Transaction], None] = lambda _: None
        """Called with every transaction that was carried out."""

    def connect(self, deliver: Callable[[Event], None]) -> "Connection":
        connection = Connection(self, deliver)
        self._connections.append(connection)
        connection.reconnect_soon()
        return connection

    @property
    def has_quorum(self) -> bool:
        return 2 * sum(server.is_up for server in self.servers) > len(self.servers)

    def open_session(self) -> int:
        client = self.tree.open_session()
        self._sessions[client.session] = client
        self._agree((client.session, None))
        return client.session

    def end_session(self, session: int) -> None:
        if self._sessions.pop(session, None) is not None:
            self.tree.end_session(session)
            self._agree((session, None))

    def has_session(self, session: int) -> bool:
        return session in self._sessions

    def carry_out(self, session: int, transaction: Transaction) -> Answer:
        answer = self.tree.handle(self._sessions[session], transaction)[0]
        self._agree((session, transaction))
        if isinstance(answer, Done):
            self.on_write(transaction)
        return answer

    def _agree(self, entry: Entry) -> None:
        self.length += 1
        for server in self.servers:
            server.append(entry)

    # Trouble

    def stop(self, number: int) -> None:
        """A server dies. Its clients, or all of them if too few are left, lose their connections."""
        self.servers[number].is_up = False
        for connection in list(self._connections):
            if connection.server is self.servers[number] or not self.has_quorum:
                connection.cut()

    def start(self, number: int) -> None:
        self.servers[number].is_up = True

    def heal(self) -> None:
        for server in self.servers:
            server.is_up, server.extra_lag_ns = True, 0

    def forget(self, connection: "Connection") -> None:
        self._connections.remove(connection)


class Connection:
    """A client's end (`contract.Service`)."""

    def __init__(self, ensemble: Ensemble, deliver: Callable[[Event], None]) -> None:
        self._ensemble = ensemble
        self._engine = ensemble.engine
        self._deliver = deliver
        self.session = 0
        self.server: EnsembleServer | None = None
        """None: it is not connected."""
        self._is_over = False
        self._attempt = 0
        """Grows with every connection and every cut: what belongs to another one is ignored."""
        self._seen = 0
        self._asked: deque[tuple[int, Request]] = deque()
        """Not answered yet, the first is being carried out."""
        self._is_busy = False
        self._cut_at: Nanos = self._engine.now

    # The client's side

    def ask(self, number: int, request: Request) -> None:
        if self.server is None:
            self._engine.at(self._engine.now, self._answer_unknown, number)
            return
        self._asked.append((number, request))
        self._go_on()

    def _answer_unknown(self, number: int) -> None:
        if not self._is_over:
            self._deliver(Answered(number, Unknown()))

    def abandon(self) -> None:
        """The process is gone; its session lives on until it expires."""
        self._is_over = True
        self._lose_connection()
        self._ensemble.forget(self)
        self._expire_later()

    # Connections

    def reconnect_soon(self) -> None:
        self._attempt += 1
        pause = between(self._ensemble.luck, *RECONNECT)
        away = self._engine.now - self._cut_at
        if away > PATIENCE:
            pause += min(away // 8, PAUSE_MAX)
        self._engine.at(self._engine.now + pause, self._reconnect, self._attempt)

    def _reconnect(self, attempt: int) -> None:
        if attempt != self._attempt or self._is_over:
            return
        ensemble = self._ensemble
        if not ensemble.has_quorum:
            self.reconnect_soon()
            return
        is_new = not ensemble.has_session(self.session)
        if is_new:
            self.session = ensemble.open_session()
            self._seen = ensemble.length
        server = one_of(ensemble.luck, [one for one in ensemble.servers if one.is_up])
        server.when_applied(self._seen, lambda: self._connected(server, is_new, attempt))

    def _connected(self, server: EnsembleServer, is_new: bool, attempt: int) -> None:
        if attempt != self._attempt or self._is_over:
            return
        if not server.is_up or not self._ensemble.has_session(self.session):
            self.reconnect_soon()
            return
        self.server = server
        server.connections[self.session] = self
        self._deliver(Connected(self.session, is_new))

    def cut(self) -> None:
        if self.server is None:
            return
        lost = [number for number, _ in self._asked]
        self._lose_connection()
        self._deliver(Suspended())
        for number in lost:
            self._deliver(Answered(number, Unknown()))
        self._expire_later()
        self.reconnect_soon()

    def expire(self) -> None:
        """The ensemble gives the session up, as after a long cut."""
        self.cut()
        self._ensemble.end_session(self.session)

    def _lose_connection(self) -> None:
        self._attempt += 1
        self._asked.clear()
        self._is_busy = False
        if self.server is not None:
            self.server.connections.pop(self.session, None)
            self.server.forget_watches(self.session)
            self.server = None

    def _expire_later(self) -> None:
        self._cut_at = self._engine.now
        self._engine.at(self._engine.now + SESSION_MAX, self._expire, self.session)

    def _expire(self, session: int) -> None:
        if self.session == session and self.server is None and self._engine.now >= self._cut_at + SESSION_MAX:
            self._ensemble.end_session(session)

    # The server's side

    def _go_on(self) -> None:
        if self._asked and not self._is_busy:
            self._is_busy = True
            at = self._engine.now + between(self._ensemble.luck, *LATENCY)
            self._engine.at(at, self._carry_out, (self._attempt, *self._asked[0]))

    def _carry_out(self, entry: tuple[int, int, Request]) -> None:
        attempt, number, request = entry
        server, ensemble = self.server, self._ensemble
        if attempt != self._attempt or server is None:
            return
        if not ensemble.has_session(self.session):
            self.cut()
            return
        match request:
            case Transaction():
                answer = ensemble.carry_out(self.session, request)
                server.when_applied(ensemble.length, lambda: self._reply(attempt, number, answer))
            case Sync():
                answer = ensemble.tree.handle(ZooKeeperClient(0), request)[0]
                server.when_applied(ensemble.length, lambda: self._reply(attempt, number, answer))
            case _:
                self._reply(attempt, number, server.read(self.session, request))

    def _reply(self, attempt: int, number: int, answer: Answer) -> None:
        if attempt == self._attempt and self.server is not None:
            self._seen = max(self._seen, self.server.applied)
            at = self._engine.now + between(self._ensemble.luck, *LATENCY)
            self._engine.at(at, self._answered, (attempt, number, answer))

    def _answered(self, entry: tuple[int, int, Answer]) -> None:
        attempt, number, answer = entry
        if attempt == self._attempt and self.server is not None:
            self._asked.popleft()
            self._is_busy = False
            self._go_on()
            self._deliver(Answered(number, answer))

    def tell(self, watch: Watch) -> None:
        at = self._engine.now + between(self._ensemble.luck, *LATENCY)
        self._engine.at(at, self._told, (self._attempt, watch))

    def _told(self, entry: tuple[int, Watch]) -> None:
        attempt, watch = entry
        if attempt == self._attempt and self.server is not None:
            self._deliver(watch)
