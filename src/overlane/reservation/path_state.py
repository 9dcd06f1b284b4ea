"""Path state: the senders, and the trees of their messages (RFC 2205, section 2.3).

Each entry comes from a Path message of the previous broker, with the part of the tree that begins here, or is this
broker's own sender. It is sent to the next brokers of its tree, and removed by a PathTear, with its link, or when it
was not refreshed for its lifetime. Of two trees of one sender the later attempt counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from overlane.planning.reserve import TSpec
from overlane.reservation.contract import Broker
from overlane.reservation.rsvp.intserv import AdSpec
from overlane.reservation.rsvp.objects import Sender, Session, Tree, Unknown

PATHS_MAX = 4096
PATHS_PER_NEIGHBOUR_MAX = 1024

Key = tuple[Session, Sender]


@dataclass(slots=True)
class PathEntry:
    session: Session
    sender: Sender
    previous: Broker | None
    """The broker before this one; None if the sender is here."""
    topic_filter: str
    tspec: TSpec
    adspec: AdSpec
    """Of the path from the sender to this broker."""
    tree: Tree
    expires_ns: int
    passed_on: tuple[Unknown, ...] = ()
    children: dict[Broker, int] = field(default_factory=dict)
    """The next brokers, and their places in the tree."""

    def __post_init__(self) -> None:
        self.children = {one.broker: place for place, one in enumerate(self.tree.nodes) if one.parent == 0}

    @property
    def is_leaf(self) -> bool:
        return self.tree.nodes[0].is_leaf

    @property
    def is_last(self) -> bool:
        return self.tree.nodes[0].is_last

    def serves(self, hop: Broker | None) -> bool:
        """Whether messages of the sender go to this neighbour, or for None to subscribers here."""
        return self.is_leaf if hop is None else hop in self.children


def is_older(attempt: int, other: int) -> bool:
    """Attempts are numbered with 16 bits, and begin again (RFC 1982)."""
    return 0 < (other - attempt) & 0xFFFF < 0x8000


class PathTable:
    def __init__(self) -> None:
        self._entries: dict[Key, PathEntry] = {}
        self._by_session: dict[Session, dict[Sender, PathEntry]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[PathEntry]:
        """All entries; some may be removed meanwhile."""
        return iter(list(self._entries.values()))

    def get(self, session: Session, sender: Sender) -> PathEntry | None:
        return self._entries.get((session, sender))

    def of(self, session: Session) -> dict[Sender, PathEntry]:
        return self._by_session.get(session, {})

    def serving(self, session: Session, hop: Broker | None) -> dict[Sender, PathEntry]:
        """The senders of a session whose messages go to a neighbour, or to subscribers here; in their order."""
        found = {sender: entry for sender, entry in self.of(session).items() if entry.serves(hop)}
        return dict(sorted(found.items()))

    def has_room(self, previous: Broker) -> bool:
        if len(self._entries) < PATHS_PER_NEIGHBOUR_MAX:
            return True
        mine = sum(entry.previous == previous for entry in self._entries.values())
        return mine < PATHS_PER_NEIGHBOUR_MAX and len(self._entries) < PATHS_MAX

    def put(self, entry: PathEntry) -> None:
        self._entries[entry.session, entry.sender] = entry
        self._by_session.setdefault(entry.session, {})[entry.sender] = entry

    def remove(self, entry: PathEntry) -> None:
        del self._entries[entry.session, entry.sender]
        senders = self._by_session[entry.session]
        del senders[entry.sender]
        if not senders:
            del self._by_session[entry.session]
