"""The coordination service of the simulated hosts: late, stale, with answers that are lost, and sessions that expire.

Every request is answered once. A request whose answer was lost may be carried out before that, after it, or never.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from overlane.coordination.contract import (
    Answer,
    Answered,
    Changed,
    Connected,
    Create,
    Event,
    Found,
    Read,
    Replace,
    Request,
    Suspended,
    Transaction,
    Unknown,
    Znode,
)
from overlane.coordination.znodes import Tree, Watch, ZooKeeperClient
from overlane.core.units import MS, Nanos
from overlane.recovery.replica_set import REPLICAS, ReplicaSet, decode_set, encode_set

After = Callable[[Nanos, Callable[[], None]], None]
Tell = Callable[[str, Event], None]


@dataclass
class Session:
    host: str
    client: ZooKeeperClient
    life: int
    """Of the process."""
    is_cut: bool = False


@dataclass
class Arbiter:
    luck: random.Random
    after: After
    tell: Tell
    """Give an event to a host, if the process that had the session still runs."""
    changed: Callable[[ReplicaSet], None]
    path: str
    tree: Tree = field(default_factory=Tree)
    sessions: dict[str, Session] = field(default_factory=dict)
    flying: list[ReplicaSet] = field(default_factory=list)
    """What requests that are on their way would make of the znode."""
    is_faulty: bool = True

    def __post_init__(self) -> None:
        writer = self.tree.open_session()
        self.tree.handle(writer, Transaction((Create(REPLICAS),)))
        self.value: ReplicaSet | None = None
        """What the znode contains."""
        self._versions: list[Znode] = []

    # Sessions

    def connect(self, host: str, life: int) -> None:
        """A new process, or one whose session has expired."""
        former = self.sessions.get(host)
        if former is not None:
            self.tree.end_session(former.client.session)
        is_cut = former.is_cut if former is not None else False
        session = self.sessions[host] = Session(host, self.tree.open_session(), life, is_cut)
        if not is_cut:
            self._tell(session, Connected(session.client.session, True))

    def cut(self, host: str) -> None:
        session = self.sessions[host]
        if not session.is_cut:
            session.is_cut = True
            session.client.watches.clear()
            self._tell(session, Suspended())

    def heal(self, host: str) -> None:
        session = self.sessions[host]
        if not session.is_cut:
            return
        session.is_cut = False
        if self.luck.random() < 0.3:
            self.connect(host, session.life)
        else:
            self._tell(session, Connected(session.client.session, False))

    def forget(self) -> None:
        """As an operator does."""
        assert self.value is not None
        operator = Session("operator", self.tree.open_session(), 0)
        self._carry_out(operator, Transaction((Replace(self.path, encode_set(self.value.forgotten())),)))

    # Requests

    def ask(self, host: str, number: int, request: Request) -> None:
        session = self.sessions[host]
        luck = self.luck.random()
        there = self.luck.randrange(1, 6) * MS
        if self.is_faulty and luck < 0.05:
            there += 150 * MS  # it overtakes nothing, but much overtakes it
        if session.is_cut or (self.is_faulty and luck < 0.15):
            # The answer is lost. The request was on its way already, or was not.
            if self.luck.random() < 0.5:
                self._fly(session, request, there, None)
            self.after(self.luck.randrange(1, 40) * MS, lambda: self._answer(session, number, Unknown()))
            return
        self._fly(session, request, there, number)

    def _fly(self, session: Session, request: Request, there: Nanos, number: int | None) -> None:
        targets = _targets(self.path, request)
        self.flying += targets

        def arrive() -> None:
            for target in targets:
                self.flying.remove(target)
            answer = self._carry_out(session, request)
            if number is not None:
                back = self.luck.randrange(1, 6) * MS
                self.after(back, lambda: self._answer(session, number, answer))

        self.after(there, arrive)

    def _answer(self, session: Session, number: int, answer: Answer) -> None:
        """To the process that asked, if it still runs: its session may have expired."""
        is_lost = session.is_cut or self.sessions[session.host] is not session
        if self.sessions[session.host].life == session.life:
            self.tell(session.host, Answered(number, Unknown() if is_lost else answer))

    def _carry_out(self, session: Session, request: Request) -> Answer:
        answer, fired = self.tree.handle(session.client, request)
        if isinstance(request, Transaction):
            self._look(session)
            for number, watch in fired:
                self._fire(number, watch)
        elif self.is_faulty and isinstance(answer, Found) and self.luck.random() < 0.1:
            # A server that is behind: it tells when it has caught up.
            self.after(self.luck.randrange(1, 40) * MS, lambda: self._tell(session, Changed(self.path)))
            return Found(self.luck.choice(self._versions))
        return answer

    def _fire(self, number: int, watch: Watch) -> None:
        for session in self.sessions.values():
            if session.client.session == number and not session.is_cut:
                self.after(self.luck.randrange(1, 6) * MS, partial(self._tell, session, watch))

    def _look(self, session: Session) -> None:
        found, _ = self.tree.handle(ZooKeeperClient(session.client.session), Read(self.path))
        if isinstance(found, Found) and found.node not in self._versions[-1:]:
            self._versions.append(found.node)
            self.value = decode_set(self.path, found.node.data)
            self.changed(self.value)

    def _tell(self, session: Session, event: Event) -> None:
        if self.sessions[session.host].client is session.client:
            self.tell(session.host, event)


def _targets(path: str, request: Request) -> list[ReplicaSet]:
    if not isinstance(request, Transaction):
        return []
    return [decode_set(path, one.data) for one in request.operations if isinstance(one, Create | Replace)]
