"""A tree of znodes, as a ZooKeeper ensemble keeps it: versions, ephemerals, watches, transactions. Pure.

It is the service of tests and of the simulator; the contract suite runs against it and against a real ensemble.
`Tree` is what the ensemble has agreed on. A `ZooKeeperClient` here is the server's idea of one: its session and its
watches. Nothing is ever late here, stale or lost: the simulator adds that outside.
"""

from dataclasses import dataclass, field

from overlane.coordination.contract import (
    Answer,
    Changed,
    Check,
    Children,
    ChildrenChanged,
    Create,
    Delete,
    Done,
    Found,
    List,
    Missing,
    Operation,
    Read,
    Reason,
    Rejected,
    Replace,
    Request,
    Sync,
    Transaction,
    Znode,
    check_path,
    parent_of,
)

Watch = Changed | ChildrenChanged


class _Rejection(Exception):
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(slots=True)
class _Entry:
    node: Znode
    children: set[str] = field(default_factory=set)


@dataclass(slots=True)
class ZooKeeperClient:
    """A session at the service, with the watches that it has left."""

    session: int
    watches: set[Watch] = field(default_factory=set)


class Tree:
    def __init__(self) -> None:
        self.transaction = 0
        """The last one that changed anything (zxid)."""
        self._entries: dict[str, _Entry] = {"/": _Entry(Znode(b"", 0, 0))}
        self._clients: dict[int, ZooKeeperClient] = {}
        self._sessions = 0

    # Sessions

    def open_session(self) -> ZooKeeperClient:
        self._sessions += 1
        client = self._clients[self._sessions] = ZooKeeperClient(self._sessions)
        return client

    def end_session(self, session: int) -> list[tuple[int, Watch]]:
        """It has expired or was closed: its ephemeral nodes go with it. Returns the watches that fire, by session."""
        self._clients.pop(session, None)
        owned = sorted(path for path, entry in self._entries.items() if entry.node.owner == session)
        fired: list[tuple[int, Watch]] = []
        if owned:
            self.transaction += 1
        for path in owned:
            self._remove(path)
            fired += self._fire(path, parent_of(path))
        return fired

    def has_session(self, session: int) -> bool:
        return session in self._clients

    # Requests

    def handle(self, client: ZooKeeperClient, request: Request) -> tuple[Answer, list[tuple[int, Watch]]]:
        """The answer, and the watches that fire because of it, by session."""
        match request:
            case Read(path):
                check_path(path)
                client.watches.add(Changed(path))
                entry = self._entries.get(path)
                return (Missing() if entry is None else Found(entry.node)), []
            case List(path):
                check_path(path)
                if (entry := self._entries.get(path)) is None:
                    return Missing(), []
                client.watches.add(ChildrenChanged(path))
                return Children(tuple(sorted(entry.children))), []
            case Sync():
                return Done(), []
            case Transaction(operations):
                return self._carry_out(client, operations)

    def _carry_out(
        self, client: ZooKeeperClient, operations: tuple[Operation, ...]
    ) -> tuple[Answer, list[tuple[int, Watch]]]:
        before = {path: _Entry(entry.node, set(entry.children)) for path, entry in self._touched(operations).items()}
        made: list[int | None] = []
        self.transaction += 1
        for index, operation in enumerate(operations):
            try:
                made.append(self._apply(client, operation))
            except _Rejection as rejection:
                self._undo(operations, before)
                self.transaction -= 1
                return Rejected(index, rejection.reason), []
        fired: list[tuple[int, Watch]] = []
        for operation in operations:
            match operation:
                case Create(path) | Delete(path):
                    fired += self._fire(path, parent_of(path))
                case Replace(path):
                    fired += self._fire(path, None)
                case Check():
                    pass
        return Done(tuple(made)), fired

    def _touched(self, operations: tuple[Operation, ...]) -> dict[str, _Entry]:
        paths = {one for operation in operations for one in (operation.path, parent_of(operation.path))}
        return {path: self._entries[path] for path in paths if path in self._entries}

    def _undo(self, operations: tuple[Operation, ...], before: dict[str, _Entry]) -> None:
        for operation in operations:
            self._entries.pop(operation.path, None)
        self._entries |= before

    def _apply(self, client: ZooKeeperClient, operation: Operation) -> int | None:
        """The version of what it has made."""
        check_path(operation.path)
        entry = self._entries.get(operation.path)
        match operation:
            case Create(path, data, is_ephemeral):
                if entry is not None:
                    raise _Rejection(Reason.EXISTS)
                parent = self._entries.get(parent_of(path))
                if parent is None:
                    raise _Rejection(Reason.MISSING)
                if parent.node.owner:
                    raise _Rejection(Reason.EPHEMERAL_PARENT)
                node = Znode(data, 0, self.transaction, client.session if is_ephemeral else 0)
                self._entries[path] = _Entry(node)
                parent.children.add(path.rpartition("/")[2])
                return 0
            case Replace(path, data, version):
                found = self._at_version(entry, version)
                node = Znode(data, found.node.version + 1, found.node.created, found.node.owner)
                found.node = node
                return node.version
            case Delete(path, version):
                found = self._at_version(entry, version)
                if found.children:
                    raise _Rejection(Reason.NOT_EMPTY)
                self._remove(path)
                return None
            case Check(path, version):
                self._at_version(entry, version)
                return None

    def _at_version(self, entry: _Entry | None, version: int | None) -> _Entry:
        if entry is None:
            raise _Rejection(Reason.MISSING)
        if version is not None and entry.node.version != version:
            raise _Rejection(Reason.VERSION)
        return entry

    def _remove(self, path: str) -> None:
        del self._entries[path]
        self._entries[parent_of(path)].children.discard(path.rpartition("/")[2])

    def _fire(self, path: str, parent: str | None) -> list[tuple[int, Watch]]:
        """`parent` is None where only the data has changed. Each watch tells once."""
        told: list[Watch] = [Changed(path)]
        if parent is not None:
            told += [ChildrenChanged(path), ChildrenChanged(parent)]
        fired = []
        for client in self._clients.values():
            for watch in told:
                if watch in client.watches:
                    client.watches.discard(watch)
                    fired.append((client.session, watch))
        return fired
