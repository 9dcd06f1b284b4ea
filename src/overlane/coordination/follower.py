"""Following znodes: a copy of what is at some paths, kept up to date through every trouble of the service. Pure.

Watches tell only that something has changed, once, and are lost with the connection. So the copy is read again after
each `Connected` (behind a `Sync`, since another server may lag), after each watch, and where an answer was lost. While
there is no connection the copy stays as it is: nothing is ever forgotten because ZooKeeper is away.
"""

from collections.abc import Iterator, Set
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
    _counts: dict[Request, int] = field(default_factory=dict)
    """How often each is asked at this moment: a burst of a thousand changes asks a thousand times."""

    def ask(self, request: Request) -> int:
        self._last += 1
        self._asked[self._last] = request
        self._counts[request] = self._counts.get(request, 0) + 1
        self._unsent.append((self._last, request))
        return self._last

    def answered(self, number: int) -> Request | None:
        request = self._asked.pop(number, None)
        if request is not None:
            self._counts[request] -= 1
            if not self._counts[request]:
                del self._counts[request]
        return request

    def is_asked(self, request: Request) -> bool:
        return request in self._counts

    def take(self) -> list[tuple[int, Request]]:
        """What is to be asked now."""
        unsent, self._unsent = self._unsent, []
        return unsent

    def forget_all(self) -> None:
        self._asked.clear()
        self._counts.clear()
        self._unsent.clear()


class Follower:
    """Follows single nodes, the children of nodes with their data, and the children of every child of a node."""

    def __init__(
        self, requests: Numbered, nodes: tuple[str, ...], parents: tuple[str, ...], folders: tuple[str, ...] = ()
    ) -> None:
        """`folders`: each of their children is a parent."""
        self._requests = requests
        self._nodes = list(nodes)
        self._folders = folders
        self._fixed = parents
        self._parents = set(parents)
        self.found: dict[str, Znode] = {}
        """By path."""
        self._names: dict[str, set[str]] = {}
        """Of those found, by parent."""
        self._is_synced = False
        self._sync = 0
        self._again: set[Request] = set()
        """What is to be asked again when the request of now is answered: it has changed meanwhile."""
        self._open: set[Request] = set()
        """What has been asked and not answered, besides the `Sync`."""
        self._watched: set[str] = set()
        """Nodes that have been read over this connection, and whose watch has not told anything since."""
        self._listed: set[str] = set()
        """The same for parents in folders."""

    @property
    def is_complete(self) -> bool:
        """Whether all has been read since the connection came, and nothing is being read."""
        return self._is_synced and not self._open

    def is_reading(self, parent: str) -> bool:
        """Whether some child of this node is being read."""
        return any(isinstance(one, Read) and one.path.rpartition("/")[0] == parent for one in self._open)

    def children(self, parent: str) -> dict[str, Znode]:
        """By name."""
        return {name: self.found[f"{parent}/{name}"] for name in sorted(self._names.get(parent, ()))}

    def names(self, parent: str) -> Set[str]:
        """Of its children."""
        return self._names.get(parent, frozenset())

    def handle(self, event: Event) -> list[str]:
        """The paths whose nodes have changed in the copy."""
        match event:
            case Connected():
                self._is_synced = False
                self._again.clear()
                self._open.clear()
                self._watched.clear()
                self._listed.clear()
                self._sync = self._requests.ask(Sync())
            case Suspended():
                self._is_synced = False
            case Changed(path) if self._is_followed(path):
                self._watched.discard(path)
                self._read_again(Read(path))
            case ChildrenChanged(path) if path in self._parents or path in self._folders:
                self._listed.discard(path)
                self._read_again(List(path))
            case _:
                pass
        return []

    def answered(self, event: Answered, request: Request) -> list[str]:
        """An answer to a request of this follower; those of others are ignored."""
        if event.request == self._sync:
            return self._synced(event.answer)
        self._open.discard(request)
        if not self._is_own(request):
            return []
        match request, event.answer:
            case ((Read() | List()), Unknown()):
                if self._is_synced:
                    self._ask(request)
                return []
            case Read(path), answer:
                self._watched.add(path)
                self._follow_up(request)
                return self._take(path, answer)
            case List(path), answer if path in self._folders:
                self._follow_up(request)
                return list(self._take_parents(path, answer))
            case List(path), answer:
                self._listed.add(path)
                self._follow_up(request)
                return list(self._take_children(path, answer))
            case _:
                return []

    def _synced(self, answer: Answer) -> list[str]:
        if not isinstance(answer, Unknown):
            self._is_synced = True
            for request in self._all_reads():
                self._ask(request)
        return []

    def follow(self, path: str) -> None:
        """Follow this node too."""
        if path not in self._nodes:
            self._nodes.append(path)
            self.look_again(Read(path))

    def has_read(self, path: str) -> bool:
        """Whether this node has been read since the connection came, and is not being read."""
        return self._is_synced and path in self._watched and not self._requests.is_asked(Read(path))

    def look_again(self, request: Read | List) -> None:
        """Read something that may have changed without a watch to tell."""
        if self._is_synced:
            self._read_again(request)

    def _all_reads(self) -> list[Request]:
        parents = (*self._fixed, *self._folders)
        return [*(Read(path) for path in self._nodes), *(List(path) for path in parents)]

    def _is_followed(self, path: str) -> bool:
        return path in self._nodes or path.rpartition("/")[0] in self._parents

    def _read_again(self, request: Request) -> None:
        if self._requests.is_asked(request):
            self._again.add(request)
        elif self._is_synced:
            self._ask(request)

    def _follow_up(self, request: Request) -> None:
        if request in self._again:
            self._again.discard(request)
            self._ask(request)

    def _ask(self, request: Request) -> None:
        self._open.add(request)
        self._requests.ask(request)

    def _is_own(self, request: Request) -> bool:
        match request:
            case Read(path):
                return self._is_followed(path)
            case List(path):
                return path in self._parents or path in self._folders
            case _:
                return False

    def _take(self, path: str, answer: Answer) -> list[str]:
        match answer:
            case Found(node):
                if self.found.get(path) == node:
                    return []
                self.found[path] = node
                parent, _, name = path.rpartition("/")
                self._names.setdefault(parent, set()).add(name)
                return [path]
            case Missing() if path in self.found:
                self._forget(path)
                return [path]
            case _:
                return []

    def _forget(self, path: str) -> None:
        del self.found[path]
        parent, _, name = path.rpartition("/")
        self._names[parent].discard(name)

    def _take_parents(self, folder: str, answer: Answer) -> Iterator[str]:
        if not isinstance(answer, Children | Missing):
            return
        names = answer.names if isinstance(answer, Children) else ()
        found = {f"{folder}/{name}" for name in names}
        known = {parent for parent in self._parents if parent.rpartition("/")[0] == folder}
        for parent in sorted(known - found):
            yield from self._take_children(parent, Missing())
            self._parents.discard(parent)
            self._listed.discard(parent)
        for parent in sorted(found - self._listed):
            self._parents.add(parent)
            self._read_again(List(parent))

    def _take_children(self, parent: str, answer: Answer) -> Iterator[str]:
        names = answer.names if isinstance(answer, Children) else ()
        if not isinstance(answer, Children | Missing):
            return
        for name in sorted(self._names.get(parent, set()) - set(names)):
            path = f"{parent}/{name}"
            self._forget(path)
            self._watched.discard(path)
            yield path
        for name in names:
            if (path := f"{parent}/{name}") not in self._watched:
                self._read_again(Read(path))
