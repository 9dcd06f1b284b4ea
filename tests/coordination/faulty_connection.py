"""A connection to a coordination service with its real weaknesses: late and lost answers, watches that overtake them,
cuts, expired sessions. What happens when is drawn from a seed."""

import random
from collections.abc import Callable

from overlane.coordination.contract import Answered, Connected, Event, Request, Suspended, Unknown
from overlane.coordination.znodes import Tree, Watch, ZooKeeperClient


class FaultyConnection:
    def __init__(
        self,
        tree: Tree,
        luck: random.Random,
        deliver: Callable[[Event], None],
        take_requests: Callable[[], list[tuple[int, Request]]],
        fire: Callable[[list[tuple[int, Watch]]], None] = lambda _: None,
    ) -> None:
        """`fire` hands watches to all connections."""
        self._tree = tree
        self._luck = luck
        self._deliver = deliver
        self._take_requests = take_requests
        self._fire = fire
        self._client: ZooKeeperClient | None = None
        self.is_connected = False
        self._pending: list[Event] = []
        self._asked: list[tuple[int, Request]] = []

    @property
    def session(self) -> int:
        return self._client.session if self._client is not None else 0

    def connect(self) -> None:
        is_new = self._client is None or not self._tree.has_session(self._client.session)
        if self._client is None or is_new:
            self._client = self._tree.open_session()
        self.is_connected = True
        self._deliver(Connected(self._client.session, is_new))

    def cut(self) -> None:
        """What is on its way is lost: requests that have not arrived, and answers to those that were carried out."""
        assert self._client is not None
        self.is_connected = False
        self._client.watches.clear()
        asked = [*self._asked, *self._take_requests()]
        lost = [event.request for event in self._pending if isinstance(event, Answered)] + [one for one, _ in asked]
        self._pending, self._asked = [], []
        self._deliver(Suspended())
        for number in lost:
            self._deliver(Answered(number, Unknown()))

    def expire(self) -> None:
        """The ensemble gives the session up, as after a long cut."""
        if self.is_connected:
            self.cut()
        if self._client is not None:
            self._fire(self._tree.end_session(self._client.session))

    def take(self, fired: list[tuple[int, Watch]]) -> None:
        if self.is_connected:
            self._pending += [watch for session, watch in fired if session == self.session]

    def step(self) -> bool:
        """One thing of those under way happens; False if there is none."""
        self._asked += self._take_requests()
        if not self.is_connected:
            asked, self._asked = self._asked, []
            for number, _ in asked:
                self._deliver(Answered(number, Unknown()))
            return bool(asked)
        choices = [*(["asked"] if self._asked else []), *(["pending"] if self._pending else [])]
        if not choices:
            return False
        if self._luck.choice(choices) == "asked":
            number, request = self._asked.pop(0)
            assert self._client is not None
            answer, fired = self._tree.handle(self._client, request)
            self._fire(fired)
            self._pending.append(Answered(number, answer))
            return True
        # Answers keep their order, and so do watches; between the two there is none.
        is_answer = self._luck.random() < 0.5
        of_kind = [event for event in self._pending if isinstance(event, Answered) == is_answer]
        event = (of_kind or self._pending)[0]
        self._pending.remove(event)
        self._deliver(event)
        return True
