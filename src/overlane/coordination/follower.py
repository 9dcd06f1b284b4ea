"""Following znodes: a copy of what is at some paths, kept up to date through every trouble of the service. Pure.

Watches tell only that something has changed, once, and are lost with the connection. So the copy is read again after
each `Connected` (behind a `Sync`, since another server may lag), after each watch, and where an answer was lost. While
there is no connection the copy stays as it is: nothing is ever forgotten because ZooKeeper is away.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from overlane.coordination.contract import (
    Answer,
    Answered,
    Changed,
    Children,
    ChildrenChanged,
    Connected,
    Event,
    Found,
    List,
    Missing,
    Read,
    Request,
    Suspended,
    Sync,
    Unknown,
    Znode,
)


@dataclass(slots=True)
class Numbered:
    """Requests with numbers, so that answers can be told apart."""

    _last: int = 0
    _asked: dict[int, Request] = field(default_factory=dict)
    _unsent: list[tuple[int, Request]] = field(default_factory=list)

    def ask(self, request: Request) -> int:
        self._last += 1
        self._asked[self._last] = request
        self._unsent.append((self._last, request))
        return self._last

    def answered(self, number: int) -> Request | None:
        return self._asked.pop(number, None)

    def is_asked(self, request: Request) -> bool:
        return request in self._asked.values()

    def take(self) -> list[tuple[int, Request]]:
        """What is to be asked now."""
        unsent, self._unsent = self._unsent, []
        return unsent

    def forget_all(self) -> None:
        self._asked.clear()
        self._unsent.clear()


class Follower:
    """Follows single nodes, and the children of nodes with their data."""

    def __init__(self, requests: Numbered, nodes: tuple[str, ...], parents: tuple[str, ...]) -> None:
        self._requests = requests
        self._nodes = nodes
        self._parents = parents
        self.found: dict[str, Znode] = {}
        """By path."""
        self._is_synced = False
        self._sync = 0
        self._again: set[Request] = set()
        """What is to be asked again when the request of now is answered: it has changed meanwhile."""
        self._watched: set[str] = set()
        """Nodes that have been read over this connection, and whose watch has not told anything since."""

    @property
    def is_current(self) -> bool:
        """Whether all has been read since the connection came, and nothing is being read."""
        return self._is_synced and not any(self._requests.is_asked(one) for one in self._all_reads())

    def children(self, parent: str) -> dict[str, Znode]:
        """By name."""
        prefix = f"{parent}/"
        return {path.removeprefix(prefix): node for path, node in self.found.items() if path.startswith(prefix)}

    def handle(self, event: Event) -> list[str]:
        """The paths whose nodes have changed in the copy."""
        match event:
            case Connected():
                self._is_synced = False
                self._again.clear()
                self._watched.clear()
                self._sync = self._requests.ask(Sync())
            case Suspended():
                self._is_synced = False
            case Changed(path) if self._is_followed(path):
                self._watched.discard(path)
                self._read_again(Read(path))
            case ChildrenChanged(path) if path in self._parents:
                self._read_again(List(path))
            case _:
                pass
        return []

    def answered(self, event: Answered, request: Request) -> list[str]:
        """An answer to a request of this follower; those of others are ignored."""
        if event.request == self._sync:
            return self._synced(event.answer)
        match request, event.answer:
            case ((Read() | List()), Unknown()):
                if self._is_synced:
                    self._requests.ask(request)
                return []
            case Read(path), answer if self._is_followed(path):
                self._watched.add(path)
                self._follow_up(request)
                return self._take(path, answer)
            case List(path), answer if path in self._parents:
                self._follow_up(request)
                return list(self._take_children(path, answer))
            case _:
                return []

    def _synced(self, answer: Answer) -> list[str]:
        if not isinstance(answer, Unknown):
            self._is_synced = True
            for request in self._all_reads():
                self._requests.ask(request)
        return []

    def look_again(self, request: Read | List) -> None:
        """Read something that may have changed without a watch to tell."""
        if self._is_synced:
            self._read_again(request)

    def _all_reads(self) -> list[Request]:
        return [*(Read(path) for path in self._nodes), *(List(path) for path in self._parents)]

    def _is_followed(self, path: str) -> bool:
        return path in self._nodes or path.rpartition("/")[0] in self._parents

    def _read_again(self, request: Request) -> None:
        if self._requests.is_asked(request):
            self._again.add(request)
        elif self._is_synced:
            self._requests.ask(request)

    def _follow_up(self, request: Request) -> None:
        if request in self._again:
            self._again.discard(request)
            self._requests.ask(request)

    def _take(self, path: str, answer: Answer) -> list[str]:
        match answer:
            case Found(node):
                if self.found.get(path) == node:
                    return []
                self.found[path] = node
                return [path]
            case Missing() if self.found.pop(path, None) is not None:
                return [path]
            case _:
                return []

    def _take_children(self, parent: str, answer: Answer) -> Iterator[str]:
        names = answer.names if isinstance(answer, Children) else ()
        if not isinstance(answer, Children | Missing):
            return
        known = self.children(parent)
        for name in known.keys() - set(names):
            path = f"{parent}/{name}"
            del self.found[path]
            self._watched.discard(path)
            yield path
        for name in names:
            if (path := f"{parent}/{name}") not in self._watched:
                self._read_again(Read(path))
