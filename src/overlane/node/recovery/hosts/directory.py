"""The directory: the data that hosts of one domain exchange through ZooKeeper, kept up to date, including that of this
process. No I/O: inputs are events of the service, outputs are requests (`requests`).

An ephemeral znode of a former session is replaced. Failed writes are repeated.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from overlane.coordination.contract import (
    Answered,
    Connected,
    Create,
    Delete,
    Done,
    Event,
    Operation,
    Replace,
    Suspended,
    Transaction,
)
from overlane.coordination.follower import Follower, Numbered
from overlane.coordination.records import MalformedRecord
from overlane.core.units import MS, NEVER, Nanos
from overlane.recovery.hosts.host_records import (
    ENDPOINTS,
    HOSTS,
    MIRRORS,
    MOVES,
    EndpointRecord,
    HostRecord,
    MirrorsRecord,
    MoveRecord,
    decode_record,
)
from overlane.recovery.replica_set import REPLICAS

TRY_AGAIN: Nanos = 300 * MS

Value = TypeVar("Value")

log = logging.getLogger("overlane.recovery")


@dataclass(frozen=True, slots=True)
class _Announced:
    data: bytes
    is_ephemeral: bool
    may_replace: Callable[[bytes], bool]


class HostDirectory:
    def __init__(self, domain: str) -> None:
        roots = (HOSTS, ENDPOINTS, MIRRORS, MOVES)
        followed = tuple(f"{root}/{domain}" for root in roots)
        self._hosts, self._endpoints, self._mirrors, self._moves = followed
        self._parents = (REPLICAS, *roots, *followed)
        self.requests = Numbered()
        self._follower = Follower(self.requests, (), followed)
        self._session = 0
        self._is_connected = False
        self._announced: dict[str, _Announced] = {}
        self._written: dict[str, bytes] = {}
        """What was last written in this session, by path."""
        self._writes: dict[int, str] = {}
        self._quiet_until: Nanos = 0
        self.hosts: dict[str, HostRecord] = {}
        self.endpoints: dict[str, str] = {}
        """By `BROKER@HOST`."""
        self.mirrors: dict[str, MirrorsRecord] = {}
        self.moves: dict[str, str] = {}
        """Brokers that an operator wants at another host."""
        self.on_change: Callable[[], None] = lambda: None

    @property
    def is_complete(self) -> bool:
        """Whether all has been read."""
        return self._follower.is_complete

    # What this process tells

    def announce_host(self, name: str, data: bytes) -> None:
        self._announce(f"{self._hosts}/{name}", data)

    def announce_endpoint(self, name: str, data: bytes) -> None:
        self._announce(f"{self._endpoints}/{name}", data)

    def publish_mirrors(self, broker: str, data: bytes, may_replace: Callable[[bytes], bool]) -> None:
        self._announced[f"{self._mirrors}/{broker}"] = _Announced(data, False, may_replace)

    def move_done(self, broker: str) -> None:
        """The broker is where it was wanted."""
        path = f"{self._moves}/{broker}"
        node = self._follower.found.get(path)
        if self._is_connected and node is not None and path not in self._writes.values():
            self._writes[self.requests.ask(Transaction((Delete(path, node.version),)))] = path

    def _announce(self, path: str, data: bytes) -> None:
        self._announced[path] = _Announced(data, True, lambda _: True)

    # Events

    def handle(self, event: Event, now: Nanos) -> None:
        changed: list[str] = []
        match event:
            case Connected(session):
                if session != self._session:
                    self._written.clear()
                self._session, self._is_connected = session, True
                self._writes.clear()
                self._quiet_until = 0
                for parent in self._parents:
                    self.requests.ask(Transaction((Create(parent),)))
                self._follower.handle(event)
            case Suspended():
                self._is_connected = False
                self._follower.handle(event)
            case Answered(number, answer):
                request = self.requests.answered(number)
                path = self._writes.pop(number, None)
                if path is not None and not isinstance(answer, Done):
                    self._written.pop(path, None)
                    self._quiet_until = now + TRY_AGAIN
                elif request is not None:
                    changed = self._follower.answered(event, request)
            case _:
                changed = self._follower.handle(event)
        for path in changed:
            self._take(path)
        self.tick(now)
        if changed:
            self.on_change()

    def tick(self, now: Nanos) -> None:
        """Write what is to be told."""
        if not self._is_connected or not self._follower.is_complete or now < self._quiet_until:
            return
        for path, announced in self._announced.items():
            if path not in self._writes.values() and (operations := self._due(path, announced)):
                self._written[path] = announced.data
                self._writes[self.requests.ask(Transaction(operations))] = path

    def next_deadline(self, now: Nanos) -> Nanos:
        return self._quiet_until if self._is_connected and now < self._quiet_until else NEVER

    def _due(self, path: str, announced: _Announced) -> tuple[Operation, ...]:
        node = self._follower.found.get(path)
        if self._written.get(path) == announced.data:
            return ()  # the copy of the znode may be older than that
        if node is None:
            return (Create(path, announced.data, announced.is_ephemeral),)
        if announced.is_ephemeral and node.owner != self._session:
            return Delete(path, node.version), Create(path, announced.data, is_ephemeral=True)
        if node.data == announced.data or not announced.may_replace(node.data):
            return ()
        return (Replace(path, announced.data, node.version),)

    def _take(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        node = self._follower.found.get(path)
        try:
            if parent == self._hosts:
                _put(self.hosts, name, None if node is None else decode_record(path, node.data, HostRecord))
            elif parent == self._endpoints:
                address = None if node is None else decode_record(path, node.data, EndpointRecord).address
                _put(self.endpoints, name, address)
            elif parent == self._mirrors:
                _put(self.mirrors, name, None if node is None else decode_record(path, node.data, MirrorsRecord))
            elif parent == self._moves:
                _put(self.moves, name, None if node is None else decode_record(path, node.data, MoveRecord).host)
        except MalformedRecord as error:
            log.error("znode %s was ignored: %s", error.path, error.reason)


def _put(into: dict[str, Value], name: str, value: Value | None) -> None:
    if value is None:
        into.pop(name, None)
    else:
        into[name] = value
