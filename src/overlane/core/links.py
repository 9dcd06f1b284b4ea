"""The links of this broker: their lives, what is sent on them, and what is said of them.

A link that falls silent, dies, blocks or never greets is closed; the parcels it held go around where they may. What is
learned of a link is advertised when it has really changed, together with how long each QoS class waits in this broker.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from overlane.core.events import Close, Effect, Lane, LinkChanged
from overlane.core.forwarding import Forwarding
from overlane.core.gossip import Gossip
from overlane.core.linkhealth import LinkState
from overlane.core.linkstate import differs, processing_differs
from overlane.core.messages import LinkClaim
from overlane.core.neighbour import NOTICE_AHEAD, Chunk, Neighbour, Outgoing, Signals
from overlane.core.networkmap import MILLION
from overlane.core.signalling import RouteTable
from overlane.core.units import MS, NEVER, US, Nanos
from overlane.core.wire import AGE_US_MAX, ParcelFlag, RouteName, aged

RISK_REMEMBERED = 20_000
"""Millionths: how likely a link that was in trouble lately is taken to fail a message."""
ASK_AFTER: Nanos = 1 * MS
"""How soon after one link has changed the others are asked: what is told now may be the first of several news."""
PROCESSING_US_MIN = 500
"""Processing latency below this is not worth a word."""

_REPAIR = int(ParcelFlag.REPAIR)
_DATA = Lane.DATA


@dataclass(slots=True)
class Sent:
    parcel_bytes: int = 0
    control_bytes: int = 0
    parcels: int = 0
    messages: int = 0


@dataclass(slots=True)
class Links:
    me: str
    incarnation: int
    scheduling: str
    ping_interval_ns: Nanos
    queue_bytes_max: Callable[[str], int]
    failure: float
    link_failure: Mapping[str, float]
    neighbours: dict[str, Neighbour]
    gossip: Gossip
    routes: RouteTable
    forwarding: Forwarding
    effects: list[Effect] = field(default_factory=list)
    sent: Sent = field(default_factory=Sent)
    leaving: bool = False
    foreseen: float | None = None
    """How likely this broker is down, by its history, where a plan tells it."""
    foreseen_links: Mapping[str, float] = field(default_factory=dict)
    """The same of links, by neighbour."""
    _processing_us: dict[int, int] = field(default_factory=dict)
    """By the deadline of the class, which is its label for others."""
    _processing_said: dict[int, int] = field(default_factory=dict)
    _processing_news: bool = False
    _is_foreseen_anew: bool = False
    _signals: Signals = field(default_factory=Signals)

    # Their lives

    def up(self, peer: str, now: Nanos) -> Neighbour:
        neighbour = self.neighbours.get(peer)
        if neighbour is None:
            bytes_max = self.queue_bytes_max(peer)
            neighbour = Neighbour(peer, self.scheduling, bytes_max, self.ping_interval_ns, self._signals)
            self.neighbours[peer] = neighbour
        elif neighbour.connected:
            # Both ends have dialled at once, and one of the two connections stays: that says nothing of the link.
            self._strand(neighbour, now, is_replaced=True)
        neighbour.connect(self.me, self.incarnation, now)
        return neighbour

    def down(self, peer: str, now: Nanos) -> None:
        neighbour = self.neighbours.get(peer)
        if neighbour is not None and neighbour.connected:
            self._strand(neighbour, now)

    def close(self, neighbour: Neighbour, reason: str, now: Nanos) -> None:
        self.effects.append(Close(neighbour.name, reason, neighbour.farewell(reason)))
        self._strand(neighbour, now)

    def tend(self, now: Nanos) -> None:
        """Pings, notices and repairs that are due; links that are beyond hope are closed."""
        if now < self.next_deadline():
            return
        for name in sorted(self.neighbours):
            neighbour = self.neighbours[name]
            if neighbour.connected and now >= neighbour.next_deadline():
                self._tend(neighbour, now)

    def next_deadline(self) -> Nanos:
        signals = self._signals
        if signals.woken:
            signals.woken = False
            signals.wake_at = min([one.next_deadline() for one in self.neighbours.values()], default=NEVER)
        return signals.wake_at

    def _tend(self, neighbour: Neighbour, now: Nanos) -> None:
        before = neighbour.health.state
        for out in neighbour.tick(now):
            self._repair(neighbour, out, now)
        if neighbour.is_mute(now):
            self.close(neighbour, "no greeting came", now)
        elif neighbour.health.dead:
            self.close(neighbour, "nothing passes: three pings in a row were not answered", now)
        elif neighbour.choked:
            self.close(neighbour, "blocked: it takes nothing more", now)
        elif before is LinkState.UP and neighbour.health.state is LinkState.SUSPECT:
            for out in neighbour.take_watched():
                self._repair(neighbour, out, now)

    def _repair(self, neighbour: Neighbour, out: Outgoing, now: Nanos) -> None:
        self.forwarding.repair(out, neighbour.name, self.routes.entry_of(out.header), now)

    def _strand(self, neighbour: Neighbour, now: Nanos, *, is_replaced: bool = False) -> None:
        """The connection is gone: what waited for it goes around, where it may."""
        for out in neighbour.disconnect(now, is_replaced=is_replaced):
            if out.header.flags & _REPAIR and not out.hops:
                self.forwarding.go_around(out, neighbour.name, self.routes.entry_of(out.header), now)

    # What is sent on them

    def ready(self) -> list[str]:
        waiting = self._signals.ready
        return sorted(waiting) if len(waiting) > 1 else list(waiting)

    def pull(self, peer: str, bytes_max: int, now: Nanos, in_buffer: int) -> list[Chunk]:
        neighbour = self.neighbours[peer]
        if not neighbour.connected:
            return []
        if neighbour.parked is not None and not neighbour.has_words and bytes_max > 0:
            return [(_DATA, self._pull_parked(neighbour, *neighbour.parked, now, in_buffer))]
        chunks: list[Chunk] = []
        room = bytes_max
        if neighbour.has_words:
            while room > 0 and (chunk := neighbour.pull_control()) is not None:
                chunks.append(chunk)
                room -= len(chunk[1])
                self.sent.control_bytes += len(chunk[1])
        if room > 0 and neighbour.parked is not None:
            chunks.append((_DATA, self._pull_parked(neighbour, *neighbour.parked, now, in_buffer)))
            return chunks
        while room > 0:
            is_last = neighbour.queue.lone is not None
            out, data, dropped = neighbour.pull_parcel(now, in_buffer)
            if dropped:
                self.forwarding.counters.expired_dropped += len(dropped)
            if out is not None:
                self._count(out, data, now)
                data = self._with_notice(neighbour, data, now)
                chunks.append((_DATA, data))
                room -= len(data)
            if out is None or is_last:
                self._signals.ready.discard(peer)
                break
        return chunks

    def pull_urgent(self, peer: str, bytes_max: int, now: Nanos, in_buffer: int) -> list[Chunk]:
        """As `pull`, of what has a deadline or measures the link alone."""
        neighbour = self.neighbours[peer]
        chunks: list[Chunk] = []
        if not neighbour.connected:
            return chunks
        room = bytes_max
        while room > 0 and (word := neighbour.pull_word()) is not None:
            chunks.append((_DATA, word))
            room -= len(word)
            self.sent.control_bytes += len(word)
        while room > 0:
            out, data, dropped = neighbour.pull_parcel(now, in_buffer, is_urgent=True)
            self.forwarding.counters.expired_dropped += len(dropped)
            if out is None:
                break
            self._count(out, data, now)
            data = self._with_notice(neighbour, data, now)
            chunks.append((_DATA, data))
            room -= len(data)
        return chunks

    def _pull_parked(
        self,
        neighbour: Neighbour,
        frame: bytes,
        _name: RouteName,
        age_us: int,
        messages: int,
        entered_ns: Nanos,
        now: Nanos,
        in_buffer: int,
    ) -> bytes:
        """The frame that was parked, with the age that it has now; nothing else waits."""
        neighbour.parked = None
        self._signals.ready.discard(neighbour.name)
        neighbour.queue.passed_by(len(frame), now, in_buffer)
        sent = self.sent
        sent.parcels += 1
        sent.parcel_bytes += len(frame)
        sent.messages += messages
        age_us += (now - entered_ns) // US
        frame = aged(frame, age_us if age_us < AGE_US_MAX else AGE_US_MAX)
        if neighbour.noticing.due_ns - now > NOTICE_AHEAD:
            return frame
        return self._with_notice(neighbour, frame, now)

    def _with_notice(self, neighbour: Neighbour, data: bytes, now: Nanos) -> bytes:
        if neighbour.noticing.due_ns - now > NOTICE_AHEAD:
            return data
        notice = neighbour.pull_notice(now)
        self.sent.control_bytes += len(notice)
        return data + notice

    def _count(self, out: Outgoing, data: bytes, now: Nanos) -> None:
        sent, header = self.sent, out.header
        sent.parcels += 1
        sent.parcel_bytes += len(data)
        sent.messages += header.messages
        if (deadline_us := header.deadline_us) and not out.is_repair:
            known = self._processing_us.get(deadline_us, 0)
            average = known + (((now - out.entered_ns) // US - known) >> 3)
            self._processing_us[deadline_us] = average
            if processing_differs(self._processing_said.get(deadline_us, 0), average):
                self._processing_news = True

    def forget_processing(self) -> None:
        """A class that no longer passes here waits here no longer."""
        self._processing_us = {deadline_us: us >> 1 for deadline_us, us in self._processing_us.items() if us > 1}
        self._processing_news = bool(self._processing_said)

    # What is said of them

    def foresee(self, failure: float | None, links: Mapping[str, float]) -> None:
        """What history tells counts more than what was known beforehand."""
        self.foreseen, self.foreseen_links = failure, dict(links)
        self._is_foreseen_anew = True

    def has_news(self) -> bool:
        """Whether something may be worth an advert."""
        return self._signals.touched or self._processing_news or self._is_foreseen_anew

    def advertise(self, now: Nanos) -> bool:
        """Tell the others what they should know of our links, if there is something."""
        news = self._links_differ(now) or self._processing_news or self._is_foreseen_anew
        if not news and now < self.gossip.next_deadline():
            return False
        self._processing_news = self._is_foreseen_anew = False
        claims = {name: self._claim(self.neighbours[name], now) for name in sorted(self.neighbours)}
        links = [claim for claim in claims.values() if claim is not None]
        processing_us = {deadline: us for deadline, us in self._processing_us.items() if us >= PROCESSING_US_MIN}
        labelled = {str(deadline_us): us for deadline_us, us in processing_us.items()}
        failure = self.failure if self.foreseen is None else self.foreseen
        if self.gossip.announce(links, labelled, int(failure * MILLION), self.leaving, now):
            self._processing_said = processing_us
            for name, claim in claims.items():
                self.neighbours[name].claimed = claim
        return True

    def leave(self, now: Nanos) -> None:
        self.leaving = True
        self._processing_news = True
        self.advertise(now)

    def _links_differ(self, now: Nanos) -> bool:
        news = False
        if not self._signals.touched:
            return news
        self._signals.touched = False
        for neighbour in self.neighbours.values():
            if not neighbour.touched:
                continue
            neighbour.touched = False
            state = neighbour.health.state
            if state is not neighbour.reported_state:
                neighbour.reported_state = state
                self.effects.append(LinkChanged(neighbour.name, state.name.lower()))
            claim, said = self._claim(neighbour, now), neighbour.claimed
            news |= claim != said if claim is None or said is None else differs(said, claim)
        if news:
            # What is wrong with one link is often wrong with its broker, and nothing but pings tells of an unused one.
            for neighbour in self.neighbours.values():
                neighbour.ask(now + ASK_AFTER)
        return news

    def failure_of(self, peer: str) -> float:
        """How likely the link to a neighbour is down."""
        foreseen = self.foreseen_links.get(peer)
        return self.link_failure.get(peer, 0.0) if foreseen is None else foreseen

    def _claim(self, neighbour: Neighbour, now: Nanos) -> LinkClaim | None:
        health = neighbour.health
        if not neighbour.greeted or not health.measured or self.leaving:
            return None
        remembered = RISK_REMEMBERED if now < health.risky_until else 0
        return LinkClaim(
            neighbour.name,
            health.latency_ns // US,
            health.jitter_ns // US,
            max(health.loss_millionths, remembered),
            int(self.failure_of(neighbour.name) * MILLION),
            int(health.state),
            health.swing_ns // US if now < health.swings_until else 0,
        )
