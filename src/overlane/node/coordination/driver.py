"""The participant in the event loop of a broker: ZooKeeper's events in, the configuration of the broker out.

kazoo has threads of its own and hands its events over to the loop. What they change reaches the broker as one
reconfiguration per iteration of the loop, however many znodes have changed. Nothing here can end the broker: where
ZooKeeper is away, the broker continues with what it knew, which is kept on disk for the next start.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, assert_never

from overlane.coordination.assignment.elasticity import Bounds
from overlane.coordination.assignment.load_outlook import LoadOutlook
from overlane.coordination.assignment.placement import strategy_named
from overlane.coordination.contract import (
    Answered,
    Connected,
    Deliver,
    Event,
    LoginRefused,
    Request,
    Service,
    Suspended,
)
from overlane.coordination.leader import AssignmentPolicy, Leader
from overlane.coordination.participant import (
    SOUGHT_MAX,
    AssignmentChanged,
    ConfigChanged,
    Ignored,
    LeaderChanged,
    MembersChanged,
    NameTaken,
    NotAllowed,
    Notice,
    Participant,
    WantedChanged,
)
from overlane.coordination.reachability import Reachability
from overlane.coordination.records import BrokerRecord, ConfigRecord, ReportRecord, pack
from overlane.coordination.view import LINGER, Kept, OverlayView
from overlane.core.events import DirectLinksWanted, ScopeDigest
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.membership.membership import Membership
from overlane.network.plan import Plan
from overlane.network.schema import RoutingTier
from overlane.node.coordination.closing import close_soon
from overlane.node.coordination.launcher import Launcher
from overlane.node.coordination.load import LoadMeter
from overlane.node.coordination.overlay_cache import write_kept
from overlane.pubsub.sessions.domain import Domain, DomainPeer

BEAT_S = 0.1
BEATS_PER_SECOND = 10
CONTINUED: Nanos = 5 * SECOND
"""How long a broker counts as one that has just gone on: as long as its links may take."""
DRAIN_STALLED_S = 1.5
"""How long a broker that leaves waits for the next of its bundles to be taken over."""
KEEP_AFTER_S = 1.0
KNOWN_AHEAD_MAX = SOUGHT_MAX // 2
"""Edges of other domains that are looked up before a direct link is wanted; the rest is for links that are wanted."""
TOLD_MAX = 1_000
"""Znodes that are reported: whoever can write them could fill the log."""

log = logging.getLogger("overlane.coordination")


class Links(Protocol):
    """What is asked of the broker's links."""

    def is_up(self, peer: str) -> bool: ...

    def latencies_us(self) -> dict[str, int]:
        """To neighbours, where it has been measured."""
        ...

    def deadline_partners(self) -> set[str]:
        """Brokers with which messages with a deadline are exchanged, in either direction."""
        ...

    def sent(self) -> tuple[int, int | None]:
        """Bytes sent over all links since the start, and what they can carry together in bit/s, if that is known."""
        ...

    def lag_s(self) -> float: ...


def policy_of(tier: RoutingTier) -> AssignmentPolicy:
    """ConfigError for a strategy that cannot be imported."""
    strategy = strategy_named(tier.strategy)
    is_by_place = tier.strategy not in ("topics", "least-loaded")
    bounds = Bounds(
        tier.brokers_min,
        tier.brokers_max,
        tier.grow_above,
        tier.grow_after_ns,
        tier.shrink_below,
        tier.shrink_after_ns,
    )
    return AssignmentPolicy(strategy, is_by_place, bounds)


class Coordinated:
    def __init__(
        self,
        name: str,
        record: BrokerRecord,
        tier: RoutingTier,
        kept: Kept,
        data: Path | None,
        now: Callable[[], Nanos],
        links: Links,
        connect: Callable[[Deliver], Service],
        take_up: Callable[[], None],
        config_changed: Callable[[ConfigRecord], None],
        domain_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`take_up` is called when `membership` and `assignment` may be others than before, `domain_changed` when
        `domain` may be. ConfigError."""
        self.view = OverlayView(name, record, kept)
        self._leader = Leader(policy_of(tier)) if record.role == "routing" else None
        self.participant = Participant(name, record, self._leader, lambda: int(time.time()))
        self._tier = tier
        self._launcher = Launcher(tier)
        self._data = data
        self._now = now
        self._links = links
        self._take_up = take_up
        self._config_changed = config_changed
        self._domain_changed = domain_changed
        self._loop = asyncio.get_running_loop()
        self._load = LoadMeter()
        self._digest = ScopeDigest()
        self._is_leaving = False
        self._reachability = Reachability()
        self._latencies_us: dict[str, int] = {}
        self._told: set[tuple[str, str]] = set()
        self._beats = 0
        self._measured_at = time.monotonic()
        self._is_due = False
        self._is_registered_anew = False
        self._strangers: set[str] = set()
        """Brokers that have dialled this one, and whose registrations are being read."""
        self._timer: asyncio.TimerHandle | None = None
        self._keeping: asyncio.TimerHandle | None = None
        self.is_connected = False
        self._session: Connected | None = None
        self._attached: Deliver | None = None
        """Another part of the broker that uses the same session."""
        self._registered_until: Nanos = 0
        """Until when those count as registered that were so last."""
        self._service = connect(self._heard)
        self._beating = self._loop.call_later(BEAT_S, self._beat)
        self._report()

    # What the broker asks

    def attach(self, heard: Deliver) -> None:
        """Let another part of the broker use the session: it gets all events, and asks with `ask_for`."""
        self._attached = heard
        if self.is_connected and self._session is not None:
            heard(self._session)

    def ask_for(self, number: int, request: Request) -> None:
        self._service.ask(2 * number + 1, request)

    def domain(self) -> Domain:
        """The other brokers that take clients of the domain. One whose registration has ended may be back soon with its
        sessions: it counts as registered as long as it stays a neighbour. So do all when ZooKeeper is lost."""
        is_registered = self._now() < self._registered_until
        edges, continued_at = self.view.domain_edges().items(), self.participant.continued_at
        peers = tuple(DomainPeer(name, record.clients, is_registered) for name, record in edges)
        return Domain(self.view.own.clients, peers, 0 if continued_at is None else continued_at + CONTINUED)

    def membership(self) -> Membership:
        return self.view.membership(self._now())

    def reached_at(self, record: BrokerRecord) -> None:
        """This broker is reached at other addresses than before: it registers them."""
        self.participant.register(record)
        self.view.own = record
        self._go_on()

    def scope_changed(self, digest: ScopeDigest) -> None:
        """Clients of this broker use other bundles than before."""
        self._digest = digest
        self.view.use(digest.published | digest.subscribed, self._now())
        self._report()
        self._go_on()
        self._take_up_soon()

    def direct_links_wanted(self, effect: DirectLinksWanted) -> None:
        """Deadlines are at risk through the routing tier, or not any more."""
        self.participant.know(effect.peers)
        undialled = self.view.want_direct(effect.peers)
        log.info("wanted direct links: %s", ", ".join(effect.peers) or "none")
        for peer in undialled:
            log.warning("no direct link with %s: it has registered no address", peer)
        for peer, reason in effect.given_up:
            log.warning("no direct link with %s for a while: %s", peer, reason)
        self._ask()
        self._take_up_soon()

    def dialled_by(self, stranger: str) -> None:
        """A broker that is no neighbour has dialled this one. If it may be one, its next attempt succeeds: the next one
        after its registration has been read, where it is not known yet."""
        if self._accept_direct(stranger):
            self._take_up_soon()
        elif self.view.own.role == "edge" and stranger not in self.view.members:
            if len(self._strangers) < SOUGHT_MAX:
                self._strangers.add(stranger)
            self.participant.know((stranger,))
            self._ask()

    def _accept_direct(self, peer: str) -> bool:
        is_accepted = self.view.accept_direct(peer, self._now())
        if is_accepted:
            log.info("%s may open a direct link", peer)
        return is_accepted

    def follow(self, tier: RoutingTier, file: Membership) -> None:
        """The network file, or the configuration in ZooKeeper, says this from now on. ConfigError."""
        if self._leader is not None:
            self._leader.follow(policy_of(tier))
        self._tier = self._launcher.tier = tier
        self.view.file = file

    def planned(self, plan: Plan | None) -> None:
        """The plan that is followed from now on."""
        load = None if plan is None else plan.load
        if self._leader is not None:
            self._leader.expect(None if load is None else LoadOutlook(load.start_s, load.rates))

    def config_taken_up(self, config: ConfigRecord) -> None:
        self.view.config = config
        self._keep_soon()

    async def leave(self) -> None:
        """A routing broker that ends gives its bundles away first, as long as that gets on."""
        self._is_leaving = True
        self._report()
        self._go_on()
        if self.view.own.role != "routing" or not self._has_others():
            return
        carried, until = self._carried(), self._loop.time() + DRAIN_STALLED_S
        while self.is_connected and carried and self._loop.time() < until:
            await asyncio.sleep(0.02)
            if (left := self._carried()) < carried:
                carried, until = left, self._loop.time() + DRAIN_STALLED_S

    async def end(self) -> None:
        for timer in (self._timer, self._beating, self._keeping):
            if timer is not None:
                timer.cancel()
        self._launcher.end()
        if self._data is not None:
            write_kept(self._data, self.view.kept())
        await close_soon(self._service)

    def _carried(self) -> int:
        return sum(one.broker == self.view.me for one in self.view.assigned.values())

    def _has_others(self) -> bool:
        members = self.participant.members.items()
        return any(one.role == "routing" and name != self.view.me for name, one in members)

    # Events of ZooKeeper

    def _heard(self, event: Event) -> None:
        match event:
            case Answered(number, answer) if number % 2:
                if self._attached is not None:
                    self._attached(Answered(number // 2, answer))
                return
            case Answered(number, answer):
                event = Answered(number // 2, answer)
            case Connected():
                self._session = event
                log.log(logging.INFO, "connected to ZooKeeper")
                self.is_connected = True
                self._registered_until = NEVER
            case Suspended():
                log.warning("ZooKeeper cannot be reached; continuing with the last known overlay")
                self.is_connected = False
                self._registered_until = self._now() + LINGER
            case LoginRefused():
                log.error("ZooKeeper refuses the login: the user or the password is wrong")
            case _:
                pass
        self._take(self.participant.handle(event, self._now()))
        self._ask()
        if self._attached is not None and not isinstance(event, Answered):
            self._attached(event)

    def _go_on(self) -> None:
        self._take(self.participant.tick(self._now()))
        self._ask()

    def _ask(self) -> None:
        for number, request in self.participant.requests.take():
            self._service.ask(2 * number, request)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.participant.next_deadline()
        if due < NEVER:
            self._timer = self._loop.call_later(max(0.001, (due - self._now()) / SECOND), self._go_on)

    def _take(self, notices: list[Notice]) -> None:
        for notice in notices:
            match notice:
                case MembersChanged():
                    self._is_registered_anew = True  # taken up once for all that come in one iteration of the loop
                    self._changed()
                case AssignmentChanged(assigned):
                    self.view.assign(assigned, self._now())
                    self._changed()
                case ConfigChanged(config):
                    self._config_changed(config)
                case LeaderChanged(name, epoch):
                    log.info("leader: %s, epoch %d", name if name is not None else "none", epoch)
                case WantedChanged(wanted):
                    log.info("wanted routing brokers: %d, because %s", wanted.routing, wanted.why)
                case NameTaken(name):
                    log.error(
                        "another broker named %s is registered in ZooKeeper; this one is not seen by others", name
                    )
                case Ignored(path, reason):
                    self._tell_once(path, f"was ignored: {reason}")
                case NotAllowed(path):
                    self._tell_once(path, "may not be used: it belongs to another user of ZooKeeper")
                case _:
                    assert_never(notice)

    def _tell_once(self, path: str, what: str) -> None:
        if (path, what) not in self._told and len(self._told) < TOLD_MAX:
            self._told.add((path, what))
            log.error("znode %s %s", path, what)

    def _changed(self) -> None:
        self._take_up_soon()
        self._keep_soon()

    def _take_up_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._take_up_now)

    def _take_up_now(self) -> None:
        self._is_due = False
        if self._is_registered_anew:
            self._is_registered_anew = False
            self.view.registered(self.participant.members, self._now())
            for stranger in sorted(self._strangers & self.view.members.keys()):
                self._strangers.discard(stranger)
                self._accept_direct(stranger)
        self._take_up()
        self._domain_changed()

    def _keep_soon(self) -> None:
        if self._data is not None and self._keeping is None:
            self._keeping = self._loop.call_later(KEEP_AFTER_S, self._keep)

    def _keep(self) -> None:
        self._keeping = None
        if self._data is not None:
            write_kept(self._data, self.view.kept())

    # Beats

    def _beat(self) -> None:
        self._beating = self._loop.call_later(BEAT_S, self._beat)
        self._beats += 1
        self.participant.suspect(self._reachability.look(self.view.needed(), self._links.is_up, self._now()))
        if self._beats % BEATS_PER_SECOND == 0:
            for peer in filter(self._links.is_up, self.view.accepted()):
                self.view.note_up(peer, self._now())
            if self.view.own.role == "edge":
                # A direct link with them may be wanted soon, and what they registered can take long to read then.
                self.participant.know(sorted(self._links.deadline_partners()), KNOWN_AHEAD_MAX)
            self._measure()
            self._report()
            wanted = self.participant.wanted
            if self.participant.is_leader and wanted is not None:
                self._launcher.want(wanted.routing)
            elif self.is_connected and not self.participant.is_leader:
                self._launcher.deposed()
            if self.view.next_deadline() <= self._now():
                self._take_up_soon()
            self._domain_changed()
        self._go_on()

    def _measure(self) -> None:
        now_s = time.monotonic()
        bytes_out, rate_bps = self._links.sent()
        if self.view.own.role == "routing" and self._tier.rate_bps is not None:
            rate_bps = self._tier.rate_bps if rate_bps is None else min(rate_bps, self._tier.rate_bps)
        self._load.measure(now_s - self._measured_at, time.thread_time(), bytes_out, rate_bps, self._links.lag_s())
        self._measured_at = now_s
        if self.view.own.role == "edge":
            fresh = {name: us for name, us in self._links.latencies_us().items() if self._is_routing(name)}
            known = self._latencies_us
            is_news = fresh.keys() != known.keys() or any(
                abs(us - known[name]) > known[name] / 4 + 500 for name, us in fresh.items()
            )
            self._latencies_us = fresh if is_news else known

    def _is_routing(self, name: str) -> bool:
        record = self.view.members.get(name)
        return record is not None and record.role == "routing"

    def _report(self) -> None:
        self.participant.report(
            ReportRecord(
                self._load.reported,
                pack(self._digest.subscribed),
                pack(self._digest.published),
                self._latencies_us,
                self._is_leaving,
            )
        )
