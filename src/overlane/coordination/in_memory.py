"""A coordination service in memory: `znodes.Tree` behind the contract, for tests.

Answers and events come at once and in order, unless a client is cut off. `cut_off` drops the connection: what is asked
then is answered with `Unknown`, and watches are gone. `expire` ends the session behind the client's back, as the
ensemble does when it has not heard a client for the session's time-out.
"""

from overlane.coordination.contract import Answered, Connected, Deliver, Request, Suspended, Unknown
from overlane.coordination.znodes import Tree, Watch, ZooKeeperClient


class InMemoryEnsemble:
    def __init__(self) -> None:
        self.tree = Tree()
        self._members: dict[int, InMemoryClient] = {}

    def connect(self, deliver: Deliver) -> "InMemoryClient":
        member = InMemoryClient(self, deliver)
        member.reconnect()
        return member

    def member_opened(self, session: int, member: "InMemoryClient") -> None:
        self._members[session] = member

    def expire(self, session: int) -> None:
        self._members.pop(session, None)
        self.tell(self.tree.end_session(session))

    def tell(self, fired: list[tuple[int, Watch]]) -> None:
        for session, watch in fired:
            if (member := self._members.get(session)) is not None:
                member.tell(watch)


class InMemoryClient:
    """A `contract.Service`."""

    def __init__(self, ensemble: InMemoryEnsemble, deliver: Deliver) -> None:
        self._ensemble = ensemble
        self._deliver = deliver
        self._client: ZooKeeperClient | None = None
        self._is_connected = False

    @property
    def session(self) -> int:
        return self._client.session if self._client is not None else 0

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    def ask(self, number: int, request: Request) -> None:
        if not self._is_connected or self._client is None:
            self._deliver(Answered(number, Unknown()))
            return
        answer, fired = self._ensemble.tree.handle(self._client, request)
        # A client hears of a change before it hears the answer to what it asked after it.
        self._ensemble.tell(fired)
        self._deliver(Answered(number, answer))

    def close(self) -> None:
        self._is_connected = False
        if self._client is not None:
            self._ensemble.expire(self._client.session)

    def tell(self, watch: Watch) -> None:
        if self._is_connected:
            self._deliver(watch)

    # Trouble

    def cut_off(self) -> None:
        self._is_connected = False
        if self._client is not None:
            self._client.watches.clear()
        self._deliver(Suspended())

    def reconnect(self) -> None:
        tree = self._ensemble.tree
        is_new = self._client is None or not tree.has_session(self._client.session)
        if self._client is None or is_new:
            self._client = tree.open_session()
            self._ensemble.member_opened(self._client.session, self)
        self._is_connected = True
        self._deliver(Connected(self._client.session, is_new))
