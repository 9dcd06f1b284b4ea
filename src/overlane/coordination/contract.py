"""The contract of a coordination service: requests, answers and events, as values.

It is a subset of ZooKeeper's interface, with its weaknesses stated explicitly:

- A read may be stale, unless a `Sync` that was asked before it has been answered.
- An answer may be lost with the connection. Then it is `Unknown`: the request may have been carried out or not.
- A read sets a watch. The watch reports once that something has changed, but not what; it is lost with the connection,
  so everything must be read again after every `Connected`.
- A session outlives its connection for its time-out. When it has expired, its ephemeral nodes are removed, and its
  owner is informed only when it is connected again: `Connected.is_new` means that an earlier session has expired. It
  may have been connected with the old session once more before that.
- `Connected` and `Suspended` alternate. A login may be refused, and accepted later.

The sender numbers its requests. Each is answered once, in any order relative to events.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

PATH_BYTES_MAX = 1_024
DATA_BYTES_MAX = 512 * 1024
"""ZooKeeper refuses messages of more than 1 MiB by default, headers and transactions included."""


@dataclass(frozen=True, slots=True)
class Znode:
    data: bytes
    version: int
    created: int
    """The transaction that created it (czxid): grows over the whole service, so it serves as an epoch."""
    owner: int = 0
    """The session that it ends with; 0 where it is persistent."""


# Requests


@dataclass(frozen=True, slots=True)
class Read:
    path: str


@dataclass(frozen=True, slots=True)
class List:
    path: str


@dataclass(frozen=True, slots=True)
class Sync:
    """What is read after its answer is no older than the moment at which it was asked."""

    path: str = "/"


@dataclass(frozen=True, slots=True)
class Create:
    """Its parents must exist."""

    path: str
    data: bytes = b""
    is_ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Replace:
    path: str
    data: bytes
    version: int | None = None
    """The version that it must have; None: any."""


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Nothing is changed; the transaction fails unless the node has this version."""

    path: str
    version: int


Operation: TypeAlias = Create | Replace | Delete | Check


@dataclass(frozen=True, slots=True)
class Transaction:
    """All of its operations happen, or none."""

    operations: tuple[Operation, ...]


Request: TypeAlias = Read | List | Sync | Transaction


# Answers


@dataclass(frozen=True, slots=True)
class Found:
    node: Znode


@dataclass(frozen=True, slots=True)
class Children:
    names: tuple[str, ...]
    """Sorted."""


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no such node."""


@dataclass(frozen=True, slots=True)
class Done:
    """A transaction was carried out, or a sync. `versions`: those of what `Create` and `Replace` made, else None."""

    versions: tuple[int | None, ...] = ()


class Reason(Enum):
    EXISTS = "the node exists already"
    MISSING = "the node, or its parent, does not exist"
    VERSION = "the node has another version"
    NOT_EMPTY = "the node has children"
    EPHEMERAL_PARENT = "an ephemeral node has no children"
    REFUSED = "not allowed"


@dataclass(frozen=True, slots=True)
class Rejected:
    """Nothing was changed: the operation at this index could not be carried out."""

    index: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Unknown:
    """The connection broke before the answer: a transaction may have been carried out or not."""


Answer: TypeAlias = Found | Children | Missing | Done | Rejected | Unknown


# Events


@dataclass(frozen=True, slots=True)
class Connected:
    session: int
    is_new: bool
    """False: the session of before goes on, and its ephemeral nodes with it."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """The connection is lost. The session may live on, or expire."""


@dataclass(frozen=True, slots=True)
class LoginRefused:
    """The user is unknown, or the password is wrong. It is tried again."""


@dataclass(frozen=True, slots=True)
class Answered:
    request: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Changed:
    """A watch: the data or the existence of this node may have changed. Read it again."""

    path: str


@dataclass(frozen=True, slots=True)
class ChildrenChanged:
    path: str


Event: TypeAlias = Connected | Suspended | LoginRefused | Answered | Changed | ChildrenChanged


class Service(Protocol):
    """A client's end of a coordination service. Events come to the function that was given when it was made."""

    def ask(self, number: int, request: Request) -> None:
        """Answered by an `Answered` event with this number; at once with `Unknown` where there is no connection."""
        ...

    def close(self) -> None:
        """End the session: its ephemeral nodes are deleted."""
        ...


Deliver: TypeAlias = Callable[[Event], None]


def check_path(path: str) -> None:
    """ValueError where ZooKeeper would refuse the path of a node."""
    parts = path.split("/")
    if path == "/":
        return
    if not path.startswith("/") or len(path.encode()) > PATH_BYTES_MAX:
        raise ValueError(f"a path begins with / and has at most {PATH_BYTES_MAX} bytes: {path[:80]!r}")
    if any(part in ("", ".", "..") or not part.isprintable() for part in parts[1:]):
        raise ValueError(f"a path has no empty, relative or unprintable parts: {path[:80]!r}")


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"
