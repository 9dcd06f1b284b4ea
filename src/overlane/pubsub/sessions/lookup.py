"""Session lookup: finds the broker of a domain that has, or creates, the session of a connecting client. Pure.

    begin -- Ask to every peer --> searching -- all have answered, or LOOKUP_WITHIN --> Found, once
    Found here -- opening: peers that ask are told so -- `settle` --> over
    Found at another broker, or not to be decided --> over

A client identifier has one session in a domain:

  - A persistent session is found at the broker that has it. If there are several, for example after a partition, the
    one that a client claimed last is used (of two at the same time the one whose broker's name is first in alphabetical
    order), and the others are discarded.
  - Clean start ends the sessions at all linked peers, with their connections; the new one is created here. The same
    applies if the session at the other broker ends with its connection.
  - If clients connect to several brokers at once and no broker has a session, the broker whose name is first in
    alphabetical order creates it, and the others find it there: a searching broker that is asked by one with an earlier
    name treats that one as opening. A broker that has decided to create the session answers so to every broker.
  - If the session of a forwarded client has ended meanwhile, the other broker searches for it again; a client is not
    forwarded twice.
  - A registered peer without a link is asked as soon as it is linked. If it has not answered in time and no session was
    found, the client is refused, since its session may be there. Peers that are not registered are not waited for.
  - A broker that was just taken over (`Domain.continued_until_ns`) resumes its own sessions without waiting for peers
    that are not linked yet. Otherwise, if several brokers of a domain fail at once, each would wait for the last one.

Links deliver in order or go down, so an answer can be missing, but not reordered.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol, assert_never

from overlane.core.units import MS, NEVER, Nanos
from overlane.pubsub.sessions.domain import (
    ALONE,
    Answer,
    Ask,
    Discard,
    Domain,
    HeldSession,
    Holding,
    Message,
    decode,
    encode,
)
from overlane.pubsub.timers import Timer, Timers

LOOKUP_WITHIN: Nanos = 300 * MS
TRY_AGAIN_AFTER: Nanos = 30 * MS
"""How often it is looked whether a peer that was not linked can be asked now."""

NOTHING = HeldSession()
OPENING = HeldSession(Holding.OPENING)

Send = Callable[[str, bytes, Nanos], bool]
"""Bytes for a peer; False, and nothing happened, if it is not linked."""


class LocalSessions(Protocol):
    """The sessions of this broker, as the lookup uses them."""

    def held(self, client_id: str, now: Nanos) -> HeldSession: ...

    def give_up(self, client_id: str, until_ns: Nanos, now: Nanos) -> None:
        """End the session, with its connection, unless it was claimed later than that."""


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a search."""

    key: Hashable
    broker: str = ""
    """Who has the session; empty: this broker, now or in a moment."""
    is_for_ever: bool = False
    """Whether that session does not expire."""
    silent: tuple[str, ...] = ()
    """Who may have the session, and does not answer: the client cannot be let in."""
    after_ns: Nanos = 0
    """The latest time at which a session was claimed that this one replaces."""


@dataclass(slots=True, eq=False)
class _Search:
    number: int
    key: Hashable
    client_id: str
    is_clean: bool
    until_ns: Nanos
    unasked: set[str] = field(default_factory=set)
    unanswered: set[str] = field(default_factory=set)
    answers: dict[str, HeldSession] = field(default_factory=dict)
    is_decided: bool = False


class SessionLookup:
    def __init__(
        self, name: str, sessions: LocalSessions, timers: Timers, send: Send, on_found: Callable[[Found], None]
    ) -> None:
        """`on_found` is called once for every search, within `begin` or later."""
        self._name = name
        self._sessions = sessions
        self._timers = timers
        self._timer: Timer | None = None
        self._number = 0
        self._searches: dict[int, _Search] = {}
        self._by_key: dict[Hashable, _Search] = {}
        self._by_client: dict[str, list[_Search]] = {}
        self.domain: Domain = ALONE
        self._send = send
        self._on_found = on_found

    @property
    def is_needed(self) -> bool:
        """Whether a session may be at another broker."""
        return bool(self.domain.peers)

    def is_kept_here(self, client_id: str, now: Nanos) -> bool:
        return self._sessions.held(client_id, now).is_kept

    def knows(self, peer: str) -> bool:
        return any(one.name == peer for one in self.domain.peers)

    def follow(self, domain: Domain, now: Nanos) -> None:
        """The domain is this from now on."""
        self.domain = domain
        waited_for = {peer.name for peer in domain.peers if peer.is_registered}
        for search in list(self._searches.values()):
            search.unasked &= waited_for
            search.unanswered &= {peer.name for peer in domain.peers}
            self._look_at(search, now)

    # A client connects

    def begin(self, key: Hashable, client_id: str, is_clean: bool, now: Nanos) -> None:
        """Search for the session of a client, which is called `key` until `settle`."""
        self._number += 1
        search = _Search(self._number, key, client_id, is_clean, now + LOOKUP_WITHIN)
        self._searches[search.number] = self._by_key[key] = search
        self._by_client.setdefault(client_id, []).append(search)
        for peer in self.domain.peers:
            if self._ask(search, peer.name, now):
                search.unanswered.add(peer.name)
            elif peer.is_registered and not is_clean:
                search.unasked.add(peer.name)
        self._look_at(search, now)
        if not search.is_decided and self._timer is None:
            self._timer = self._timers.at(now + TRY_AGAIN_AFTER, self._tick)

    def settle(self, key: Hashable) -> None:
        """The client has its session, or is gone."""
        if (search := self._by_key.get(key)) is not None:
            self._end(search)

    def _end(self, search: _Search) -> None:
        del self._searches[search.number], self._by_key[search.key]
        others = self._by_client[search.client_id]
        others.remove(search)
        if not others:
            del self._by_client[search.client_id]

    def _ask(self, search: _Search, peer: str, now: Nanos) -> bool:
        return self._tell(peer, Ask(search.number, search.client_id, search.is_clean), now)

    def _tell(self, peer: str, message: Message, now: Nanos) -> bool:
        return self._send(peer, encode(message), now)

    def _tick(self, now: Nanos) -> None:
        self._timer = None
        for search in list(self._searches.values()):
            for peer in sorted(search.unasked):
                if self._ask(search, peer, now):
                    search.unasked.discard(peer)
                    search.unanswered.add(peer)
            self._look_at(search, now)
        due = min((one.until_ns for one in self._searches.values() if not one.is_decided), default=NEVER)
        if due < NEVER:
            self._timer = self._timers.at(min(due, now + TRY_AGAIN_AFTER), self._tick)

    # A peer says something

    def heard(self, peer: str, body: bytes, now: Nanos) -> None:
        message = decode(body) if self.knows(peer) else None
        match message:
            case None:
                pass
            case Ask():
                self._tell(peer, Answer(message.number, self._answer(peer, message, now)), now)
            case Answer(number, held):
                search = self._searches.get(number)
                if search is not None and peer in search.unanswered:
                    search.unanswered.discard(peer)
                    # It may have asked in the meantime, and be opening.
                    if held.is_kept or peer not in search.answers:
                        search.answers[peer] = held
                    self._look_at(search, now)
            case Discard(client_id, until_ns):
                self._sessions.give_up(client_id, until_ns, now)
            case _:
                assert_never(message)

    def _answer(self, peer: str, ask: Ask, now: Nanos) -> HeldSession:
        searching = self._by_client.get(ask.client_id, [])
        is_opening = any(one.is_decided for one in searching) or bool(searching and self._name < peer)
        held = NOTHING if ask.is_clean else self._sessions.held(ask.client_id, now)
        if held.is_kept:
            return held
        if is_opening:
            return OPENING
        if ask.is_clean:
            self._sessions.give_up(ask.client_id, NEVER, now)
        for search in searching:
            search.answers[peer] = OPENING
        return held

    # The decision

    def _look_at(self, search: _Search, now: Nanos) -> None:
        if search.is_decided or (self._is_waiting(search, now) and now < search.until_ns):
            return
        search.is_decided = True
        found = self._clean(search) if search.is_clean else self._resumed(search, now)
        if found.broker or found.silent:
            self._end(search)
        self._on_found(found)

    def _is_waiting(self, search: _Search, now: Nanos) -> bool:
        if search.unanswered or not search.unasked:
            return bool(search.unanswered)
        return now >= self.domain.continued_until_ns or not self.is_kept_here(search.client_id, now)

    def _clean(self, search: _Search) -> Found:
        return self._at_opening(search) or Found(search.key)

    def _at_opening(self, search: _Search) -> Found | None:
        opening = [peer for peer, held in search.answers.items() if held.holding is Holding.OPENING]
        return Found(search.key, min(opening)) if opening else None

    def _resumed(self, search: _Search, now: Nanos) -> Found:
        own = self._sessions.held(search.client_id, now)
        held = {**search.answers, self._name: own}
        kept = {broker: one for broker, one in held.items() if one.is_kept}
        best = min(kept, key=lambda broker: (-kept[broker].claimed_ns, broker), default="")
        if not best and (opening := self._at_opening(search)) is not None:
            return opening
        is_here = best == self._name or own.holding is Holding.CONNECTED
        silent = tuple(sorted(search.unasked | search.unanswered))
        if not best and not is_here and silent:
            return Found(search.key, silent=silent)
        after_ns = self._discard_others(search.client_id, held, best or self._name, now)
        if not best or best == self._name:
            return Found(search.key, after_ns=after_ns)
        return Found(search.key, best, kept[best].holding is Holding.FOR_EVER)

    def _discard_others(self, client_id: str, held: dict[str, HeldSession], best: str, now: Nanos) -> Nanos:
        """End all sessions but one; when the latest of those was claimed."""
        latest_ns = 0
        for broker, one in sorted(held.items()):
            if broker == best or one.holding < Holding.CONNECTED:
                continue
            latest_ns = max(latest_ns, one.claimed_ns)
            if broker == self._name:
                self._sessions.give_up(client_id, one.claimed_ns, now)
            else:
                self._tell(broker, Discard(client_id, one.claimed_ns), now)
        return latest_ns
