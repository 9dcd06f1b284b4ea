"""The driver: a ZooKeeper ensemble as a coordination service, by kazoo.

kazoo has its own threads. Its callbacks only pass events to the event loop (`call_soon_threadsafe`), in their order.
Requests are not queued while there is no connection: they are answered with `Unknown` at once, since the sender has to
read everything again after `Connected` anyway.

Brokers work without the session: if ZooKeeper cannot be reached, even for days, kazoo retries. It gives up only when a
login fails, which a stopping server may cause too: then it is started again here.

`Connected` is sent when the root exists. If the connection is lost before that, no event is sent: a failed request on
one connection has no meaning for the next. So `Connected` and `Suspended` alternate.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent, ZnodeStat
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from overlane.coordination.contract import (
    Answer,
    Answered,
    Changed,
    Check,
    Children,
    ChildrenChanged,
    Connected,
    Create,
    Delete,
    Deliver,
    Done,
    Event,
    Found,
    List,
    LoginRefused,
    Missing,
    Operation,
    Read,
    Reason,
    Rejected,
    Replace,
    Request,
    Suspended,
    Sync,
    Transaction,
    Unknown,
    Znode,
    check_path,
)

SESSION_S = 6.0
"""Longer than an election of the ensemble takes, so that one costs nobody its session."""
RETRY_MAX_S = 2.0
LOGIN_AGAIN_S = 2.0
"""After a login that was refused."""

REASONS: dict[type[KazooException], Reason] = {
    NodeExistsError: Reason.EXISTS,
    NoNodeError: Reason.MISSING,
    BadVersionError: Reason.VERSION,
    NotEmptyError: Reason.NOT_EMPTY,
    NoChildrenForEphemeralsError: Reason.EPHEMERAL_PARENT,
    NoAuthError: Reason.REFUSED,
    AuthFailedError: Reason.REFUSED,
    InvalidACLError: Reason.REFUSED,
}

logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # what matters comes as events


@dataclass(frozen=True, slots=True)
class Tls:
    ca: str
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """Where the ensemble is, and who asks it."""

    hosts: str
    """`HOST:PORT`, separated by commas."""
    root: str = "/overlane"
    """All paths are below this one; it is made where it does not exist."""
    user: str | None = None
    password: str | None = None
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class _Watch:
    """Equal watches are one to kazoo, so that a path that is read twice tells once."""

    tell: Callable[[Event], None]
    event: Changed | ChildrenChanged

    def __call__(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:  # NONE: the connection is lost, which is told anyway
            self.tell(self.event)


class ZooKeeper:
    """A `contract.Service`. Starts to connect at once; events are delivered in the loop in which it was made."""

    def __init__(self, access: Access, deliver: Deliver, session_s: float = SESSION_S) -> None:
        self._root = "" if access.root == "/" else access.root
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._session = 0
        self._connection = 0
        """Grows with every change of the connection's state, in kazoo's thread."""
        self._is_connected = False
        self._is_closed = False
        sasl = {"mechanism": "DIGEST-MD5", "username": access.user, "password": access.password}
        tls = {} if access.tls is None else _tls_options(access.tls)
        self._client = KazooClient(
            access.hosts,
            timeout=session_s,
            randomize_hosts=True,
            connection_retry={"max_tries": -1, "max_delay": RETRY_MAX_S, "ignore_expire": True},
            default_acl=OPEN_ACL_UNSAFE if access.user is None else CREATOR_ALL_ACL,
            sasl_options=None if access.user is None else sasl,
            **tls,
        )
        self._client.add_listener(self._state_changed)
        self._client.start_async()

    def close(self) -> None:
        """Blocks until the session is ended, or cannot be: a second at most."""
        self._is_closed = True
        self._client.stop()
        self._client.close()

    def ask(self, number: int, request: Request) -> None:
        if not self._is_connected:
            self._loop.call_soon(self._hand_over, Answered(number, Unknown()))
            return
        match request:
            case Read(path):
                self._read(number, path)
            case List(path):
                watch = _Watch(self._tell, ChildrenChanged(path))
                asked = self._client.get_children_async(self._full(path), watch)
                self._answer(number, asked, lambda names: Children(tuple(sorted(names))))
            case Sync(path):
                self._answer(number, self._client.sync_async(self._full(path)), lambda _: Done())
            case Transaction(operations):
                self._carry_out(number, operations)

    # Requests

    def _full(self, path: str) -> str:
        check_path(path)
        return self._root + path if path != "/" else self._root or "/"

    def _read(self, number: int, path: str) -> None:
        watch = _Watch(self._tell, Changed(path))
        full = self._full(path)

        def look_again(stat: ZnodeStat | None) -> Answer | None:
            if stat is None:
                return Missing()
            self._answer(number, self._client.get_async(full, watch), found)  # it came into being meanwhile
            return None

        def found(got: tuple[bytes, ZnodeStat]) -> Answer:
            data, stat = got
            return Found(Znode(data, stat.version, stat.czxid, stat.ephemeralOwner))

        # A read of a node that does not exist leaves no watch at ZooKeeper; asking for its existence does.
        def missing() -> None:
            self._answer(number, self._client.exists_async(full, watch), look_again)

        self._answer(number, self._client.get_async(full, watch), found, missing)

    def _carry_out(self, number: int, operations: tuple[Operation, ...]) -> None:
        if len(operations) == 1 and (alone := self._alone(operations[0])) is not None:
            self._answer(number, alone, lambda result: Done((_version(result),)), lambda: self._tell_missing(number))
            return
        transaction = self._client.transaction()
        for operation in operations:
            full = self._full(operation.path)
            match operation:
                case Create(_, data, is_ephemeral):
                    transaction.create(full, data, ephemeral=is_ephemeral)
                case Replace(_, data, version):
                    transaction.set_data(full, data, -1 if version is None else version)
                case Delete(_, version):
                    transaction.delete(full, -1 if version is None else version)
                case Check(_, version):
                    transaction.check(full, version)
        self._answer(number, transaction.commit_async(), _outcome)

    def _alone(self, operation: Operation) -> Any:
        """A single operation is no transaction to ZooKeeper, which takes less of it and of kazoo; None: it cannot be
        asked for alone."""
        full = self._full(operation.path)
        match operation:
            case Create(_, data, is_ephemeral):
                return self._client.create_async(full, data, ephemeral=is_ephemeral)
            case Replace(_, data, version):
                return self._client.set_async(full, data, -1 if version is None else version)
            case Delete(_, version):
                return self._client.delete_async(full, -1 if version is None else version)
            case Check():
                return None

    def _tell_missing(self, number: int) -> None:
        self._tell(Answered(number, Rejected(0, Reason.MISSING)))

    def _answer(
        self,
        number: int,
        asked: Any,
        answer: Callable[[Any], Answer | None],
        if_missing: Callable[[], None] | None = None,
    ) -> None:
        """When kazoo has a result, in its thread: hand the answer over. `answer` gives None where it asks once more."""

        def done(result: Any) -> None:
            try:
                given = answer(result.get_nowait())
            except NoNodeError:
                if if_missing is not None:
                    if_missing()
                    return
                given = Missing()
            except (KazooException, KazooTimeoutError) as error:
                given = _failure(error)
            if given is not None:
                self._tell(Answered(number, given))

        asked.rawlink(done)

    # In kazoo's threads

    def _state_changed(self, state: str) -> None:
        self._connection += 1
        if state == KazooState.CONNECTED:
            connection = self._connection
            client_id = self._client.client_id
            session = client_id[0] if client_id is not None else 0

            def root_made(result: Any) -> None:
                if result.successful() or type(result.exception) in REASONS:
                    self._in_loop(self._connected, connection, session)

            self._client.ensure_path_async(self._root or "/").rawlink(root_made)
        else:
            self._in_loop(self._lost, self._client.client_state)

    def _tell(self, event: Event) -> None:
        self._in_loop(self._hand_over, event)

    def _in_loop(self, act: Callable[..., None], *arguments: object) -> None:
        if not self._is_closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, *arguments)

    # Events, in the event loop

    def _connected(self, connection: int, session: int) -> None:
        if connection == self._connection:
            is_new, self._session = session != self._session, session
            self._is_connected = True
            self._hand_over(Connected(session, is_new))

    def _lost(self, state: str) -> None:
        if self._is_connected:
            self._is_connected = False
            self._hand_over(Suspended())
        if state == KeeperState.AUTH_FAILED:
            self._hand_over(LoginRefused())
        if state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED):
            self._loop.call_later(LOGIN_AGAIN_S, self._start_again)

    def _start_again(self) -> None:
        if not self._is_closed and self._client.client_state == KeeperState.CLOSED:
            self._client.start_async()

    def _hand_over(self, event: Event) -> None:
        if not self._is_closed:
            self._deliver(event)


def _outcome(results: list[object]) -> Answer:
    for index, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            return _failure(result, index)
    if any(isinstance(result, Exception) for result in results):
        return Unknown()
    return Done(tuple(_version(result) for result in results))


def _version(result: object) -> int | None:
    match result:
        case str():
            return 0  # a path: created
        case ZnodeStat():
            return int(result.version)
        case _:
            return None


def _failure(error: Exception, index: int = 0) -> Answer:
    """What is not a clear refusal leaves it open whether anything happened."""
    reason = REASONS.get(type(error))
    return Unknown() if reason is None else Rejected(index, reason)


def _tls_options(tls: Tls) -> dict[str, Any]:
    return {
        "use_ssl": True,
        "ca": tls.ca,
        "certfile": tls.certificate,
        "keyfile": tls.key,
        "verify_certs": True,
        "check_hostname": True,
    }
