"""Gossip: how link state and interest reach every broker.

Adverts and changes of interest are flooded. New ones are stored and forwarded to every neighbour except the sender; an
old one is answered with the newer one, so that its sender is updated. A new neighbour first sends a summary of its
state and gets the missing parts: so a broker that was disconnected catches up.

Any broker may forward the information of others, so a malicious neighbour can forge it:

  - A broker that receives newer information about itself than it has sent repeats its own with a higher number.
  - Information about a neighbour, forwarded by others, is refused if it has a later incarnation than the one in which
    that neighbour is connected, or an impossible sequence number.
  - If brokers prove their incarnations (incarnation_proofs.py), proven information has precedence over any information
    from later incarnations, in any order of arrival.

Edges and routing brokers exchange much less (tiers.py): an edge forwards nothing, and a routing broker sends each edge
only information about edges with which it shares topics.

broker_admission.py decides which brokers are stored and forwarded at all. Interest of a broker that is not admitted yet
is requested again when it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from overlane.core.gossip.broker_admission import WAIT_MAX, BrokerAdmission
from overlane.core.gossip.incarnation_proofs import IncarnationProofs
from overlane.core.gossip.interest import RemoteInterest, mention
from overlane.core.gossip.link_state import (
    AdvertThrottle,
    LinkStateTable,
    lifetime_s_for,
)
from overlane.core.gossip.local_interest import LocalInterest
from overlane.core.gossip.own_name import OwnName
from overlane.core.gossip.tiers import EDGE_TIER, AcrossTiers, Tiers
from overlane.core.links.interest_transfer import WholeSet
from overlane.core.links.neighbour import Neighbour
from overlane.core.units import Nanos
from overlane.core.wire.control_messages import (
    Advert,
    ControlMessage,
    GossipSummary,
    IncarnationProof,
    InterestRequest,
    InterestUpdate,
    KnownVersions,
    LinkClaim,
    ProvenIncarnations,
    PublishScope,
    ScopeComplete,
    ScopedInterest,
    is_between,
    pages,
)

LEAP_MAX = 1 << 32
"""No broker sends so many updates in one incarnation: greater leaps are refused, or they would use up the numbers."""


Heard = Advert | InterestUpdate | InterestRequest | GossipSummary | IncarnationProof | ProvenIncarnations | AcrossTiers


@dataclass(slots=True)
class News:
    """What the rest of the broker must know of received gossip."""

    needed: list[tuple[str, list[str]]] = field(default_factory=list)
    """Brokers that newly need topic filters."""
    left: list[str] = field(default_factory=list)
    restarted: list[tuple[str, int]] = field(default_factory=list)
    proven: list[tuple[str, int]] = field(default_factory=list)
    """Brokers and their proven incarnations; what was said of later ones is false."""
    admitted: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    """Brokers that were heard of for the first time, and those of which nothing is known any more."""


class Gossip:
    def __init__(
        self,
        me: str,
        incarnation: int,
        neighbours: Mapping[str, Neighbour],
        table: LinkStateTable,
        local: LocalInterest,
        remote: RemoteInterest,
        proofs: IncarnationProofs,
        admission: BrokerAdmission,
        instance: int = 0,
    ) -> None:
        self._me = me
        self._incarnation = incarnation
        self._neighbours = neighbours
        self._table = table
        self._local = local
        self._remote = remote
        self._instance = instance
        self._proofs = proofs
        self._admission = admission
        self._unheard: dict[str, tuple[str, Nanos]] = {}
        """Brokers whose interest came before they were admitted, or in a later incarnation than known: sender, time."""
        self._greeted_names: tuple[str, ...] | None = None
        """The neighbours that are here, as of the last survey; None if that may have changed."""
        self._greeted_now: list[Neighbour] | None = None
        self._flooded_now: list[Neighbour] | None = None
        """The neighbours that are here, and those of them that are told what is flooded; None if not known."""
        self.tiers = Tiers(neighbours, table, proofs, self._next_sequence)
        self.own_name = OwnName(me, incarnation, neighbours, table, proofs, admission)
        self._advert_throttle = AdvertThrottle()
        self._sequence = 0
        self._is_taken_for_gone = False
        """Somebody said that we left, and who believes that has forgotten what we need."""

    def next_deadline(self) -> Nanos:
        return min(self._advert_throttle.next_deadline(), self._admission.next_deadline(), self._table.next_deadline())

    def greet(self, neighbour: Neighbour) -> None:
        """A new neighbour: tell it what we know, so that it can tell us what we do not."""
        self._greeted_names = self._greeted_now = self._flooded_now = None
        if self.tiers.own_tier == EDGE_TIER or self.tiers.is_edge(neighbour):
            if (proof := self._proofs.proof_of(self._me)) is not None:
                neighbour.send(proof)
        else:
            for message in self._proofs.greeting():
                neighbour.send(message)
        if self.tiers.is_direct(neighbour):
            self.tiers.greet_direct(neighbour)
            return
        if not self.tiers.is_scoped(neighbour):
            self._sum_up(neighbour)
            return
        self.tiers.greet(neighbour)

    def _sum_up(self, neighbour: Neighbour) -> None:
        for page, after, until in pages(sorted(self._told())):
            known = [KnownVersions(name, self._table.version_of(name), self._interest_version(name)) for name in page]
            neighbour.send(GossipSummary(known, after, until))

    def _told(self) -> set[str]:
        """The brokers that neighbours are told of: who is admitted, and who may be away for long and still counts."""
        if self.tiers.own_tier == EDGE_TIER:
            return {self._me}
        away = (name for name in self._remote.brokers() if self._admission.is_trusted(name))
        return {*self._table.adverts, *away, self._me}

    def announce_at(self) -> Nanos:
        """When to consider an advert of our own links without news of them."""
        return self._advert_throttle.next_deadline()

    def must_wait_to_announce(self, now: Nanos) -> bool:
        """Whether news of our own links have to wait, since others were told just now. `next_deadline` tells when."""
        return self._advert_throttle.must_wait(now)

    def announce(
        self, links: list[LinkClaim], processing_us: dict[str, int], failure: int, left: bool, now: Nanos
    ) -> bool:
        """Advertise our own links if that is due; True if it was."""
        advert = Advert(
            self._me,
            self._incarnation,
            self._sequence + 1,
            links,
            processing_us,
            failure,
            left,
            self._instance,
            lifetime_s_for(len(self._table.adverts)),
        )
        if not self._advert_throttle.consider(advert, now):
            return False
        self._next_sequence()
        self._advert_throttle.said(advert, now)
        self._table.accept(advert, now)
        self._admission.took(advert, now)
        self._flood(advert)
        self.tiers.announced(advert, now)
        if self._is_taken_for_gone:
            self._is_taken_for_gone = False
            self._local.sequence += 1
            self._flood(self._local.mention())
        return True

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def tell_interest(self) -> None:
        """Tell the others what changed in what we need."""
        if self.tiers.edge_scope is not None:
            for topic_filter, is_needed in self._local.unannounced():
                self.tiers.edge_scope.need(topic_filter, is_needed)
        for news in self._local.news():
            self._flood(news)

    def next_part(self, neighbour: Neighbour) -> InterestUpdate | None:
        """The next part of what a neighbour was promised of whole sets of filters, made now."""
        return neighbour.transfers.next_part(self._whole_set)

    def lost(self, peer: str) -> None:
        """A link is gone: what its neighbour had still to tell of others' needs is asked of those that are there."""
        self._greeted_names = self._greeted_now = self._flooded_now = None
        self.tiers.lost(peer)
        for broker in self._remote.lost(peer):
            for neighbour in self._greeted():
                if neighbour.name != peer:
                    neighbour.send(InterestRequest(broker))

    def settle(self, now: Nanos, *, is_sweep: bool = False) -> News:
        """At the end of each turn: see who is connected now. In a sweep also forget who has not been for long."""
        news = News()
        if self._greeted_names is None:
            self._greeted_names = tuple(neighbour.name for neighbour in self._greeted())
        elif not is_sweep and not self._admission.is_dirty and not self._table.has_news:
            return news
        found = self._admission.survey(self._greeted_names, now, is_sweep=is_sweep)
        for sender, advert in found.admitted:
            if self._refuse_contradicted(sender, advert.broker, (advert.incarnation, advert.sequence), (0, 0)):
                self._admission.lost(advert.broker)
            else:
                self._take(sender, advert, news, now)
        for broker in found.regained:
            if (known := self._table.adverts.get(broker)) is not None:
                self._pass_on(known)
                self._flood(mention(broker, *self._interest_version(broker)))
        if is_sweep:
            self.own_name.look(now)
            found.evicted += self._admission.expired_interest(self._remote.brokers(), now)
            self._unheard = {name: heard for name, heard in self._unheard.items() if now - heard[1] <= WAIT_MAX}
        for broker in found.evicted:
            self._remote.disown(broker)
            news.left.append(broker)
        for broker in found.forgotten:
            self._forget(broker, news)
        self._table.settle(now)
        return news

    def _forget(self, broker: str, news: News) -> None:
        """A broker is no longer on the map. While messages are kept for it, its incarnation stays known."""
        news.forgotten.append(broker)
        if not self._remote.is_needy(broker):
            self._remote.disown(broker)
            self._proofs.forget(broker)

    def is_known(self, advert: Advert) -> bool:
        """Whether another neighbour has told it already."""
        return self._table.version_of(advert.broker) == (advert.incarnation, advert.sequence)

    def is_plausible_incarnation(self, broker: str, incarnation: int) -> bool:
        """Whether no proof contradicts this incarnation of a broker. A neighbour's own greeting proves it too,
        but only here."""
        proven = self._proofs.incarnation_of(broker)
        if proven is None or incarnation <= proven:
            return True
        neighbour = self._neighbours.get(broker)
        return neighbour is not None and neighbour.greeted and incarnation <= neighbour.incarnation

    def is_known_incarnation(self, broker: str, incarnation: int) -> bool:
        """Whether a broker has announced this incarnation itself, or a later one; otherwise it is invented.

        A broker announces it before everything else. Forged parcels or routes of a future incarnation would otherwise
        displace those of the present one for good.
        """
        if not self.is_plausible_incarnation(broker, incarnation):
            return False
        advert = self._table.adverts.get(broker)
        if advert is not None and incarnation <= advert.incarnation:
            return True
        neighbour = self._neighbours.get(broker)
        return neighbour is not None and neighbour.greeted and incarnation <= neighbour.incarnation

    def hear(
        self,
        sender: str,
        message: Heard,
        now: Nanos,
    ) -> News:
        news = News()
        neighbour = self._neighbours[sender]
        is_scoped = self.tiers.is_scoped(neighbour)
        if self.tiers.is_direct(neighbour) and not (
            isinstance(message, (Advert, IncarnationProof)) and message.broker in (sender, self._me)
        ):
            return news
        match message:
            case ScopedInterest() | PublishScope() | ScopeComplete():
                news.needed += self.tiers.hear(sender, message, now)
            case Advert(broker=broker) if self.tiers.is_edge(self._neighbours[sender]) and broker not in (
                sender,
                self._me,
            ):
                pass  # an edge speaks for itself alone
            case InterestUpdate() | InterestRequest() | GossipSummary() | ProvenIncarnations() if is_scoped:
                pass  # not said between tiers, unless a broker has changed its own
            case Advert():
                self._hear_advert(sender, message, news, now)
            case InterestUpdate():
                self._hear_interest(sender, message, news, now)
            case InterestRequest(broker):
                if self._whole_set(broker) is not None:
                    self._neighbours[sender].want(broker)
            case GossipSummary():
                self._hear_summary(sender, message)
                for entry in message.known:
                    if entry.broker == self._me:
                        self.own_name.heard_of(sender, max(entry.advert[0], entry.interest[0]), now)
            case IncarnationProof():
                self._hear_proof(sender, message, news, now)
            case ProvenIncarnations():
                for proof in self._proofs.lacking(message):
                    self._neighbours[sender].send(proof)
        return news

    def _hear_proof(self, sender: str, proof: IncarnationProof, news: News, now: Nanos) -> None:
        broker, incarnation = proof.broker, proof.incarnation
        neighbour = self._neighbours.get(broker)
        if neighbour is not None and neighbour.greeted and incarnation < neighbour.incarnation:
            return  # it has restarted since, and is connected
        if not self._proofs.accept(sender, proof, now):
            if broker == self._me and incarnation > self._incarnation and self._proofs.verify(sender, proof, now):
                self.own_name.heard_of(sender, incarnation, now, is_proven=True)
            return
        if (scope := self.tiers.routing_scope) is not None:
            for name in scope.partners(broker):
                if (one := self._neighbours.get(name)) is not None and one.greeted:
                    one.send(proof)
        self._flood(proof, except_for=sender)
        news.proven.append((broker, incarnation))
        advert, needs_incarnation = self._table.adverts.get(broker), self._remote.version_of(broker)[0]
        is_lie = advert is not None and advert.incarnation > incarnation
        if is_lie:
            self._table.forget(broker, now)
            self._admission.lost(broker)
        if needs_incarnation > incarnation or (is_lie and advert is not None and advert.left):
            self._remote.disown(broker)
        if self._proofs.take_missed(broker) or is_lie or needs_incarnation > incarnation:
            # What the broker says itself may have been told before, in vain; and the sender may be the one that lied.
            for neighbour in self._greeted():
                if not self.tiers.is_scoped(neighbour):
                    self._sum_up(neighbour)

    def _hear_advert(self, sender: str, advert: Advert, news: News, now: Nanos) -> None:
        if advert.broker == self._me:
            self.own_name.heard_of(sender, advert.incarnation, now)
            if advert.incarnation == self._incarnation and 0 < advert.sequence - self._sequence < LEAP_MAX:
                self._sequence = advert.sequence
                self._advert_throttle.speak_up()
                self._is_taken_for_gone |= advert.left
            return
        version = advert.incarnation, advert.sequence
        if self._refuse_contradicted(sender, advert.broker, version, self._table.version_of(advert.broker)):
            return
        newest = self._table.adverts.get(advert.broker)
        if newest is None or (newest.incarnation, newest.sequence) < version:
            if self._admission.take_or_wait(sender, advert, self._remote.is_needy(advert.broker), now):
                self._take(sender, advert, news, now)
        elif (newest.incarnation, newest.sequence) > version and self.tiers.own_tier != EDGE_TIER:
            self._neighbours[sender].send(newest)

    def _take(self, sender: str, advert: Advert, news: News, now: Nanos) -> None:
        """Keep an advert that is news, and pass it on."""
        broker, incarnation_before = advert.broker, self._table.version_of(advert.broker)[0]
        if broker not in self._table.adverts:
            news.admitted.append(broker)
        self._table.accept(advert, now)
        self._admission.took(advert, now)
        if advert.incarnation > incarnation_before:
            news.restarted.append((broker, advert.incarnation))
        if advert.left:
            self._remote.forget(broker)
            news.left.append(broker)
        self._pass_on(advert, except_for=sender)
        if advert.left:
            self.tiers.left(broker)
        if (heard := self._unheard.pop(broker, None)) is not None and not advert.left:
            asked = self._neighbours.get(heard[0])
            if asked is not None and asked.greeted:
                asked.send(InterestRequest(broker))

    def _hear_interest(self, sender: str, message: InterestUpdate, news: News, now: Nanos) -> None:
        if message.broker == self._me:
            if message.incarnation == self._incarnation and 0 < message.sequence - self._local.sequence < LEAP_MAX:
                self._local.sequence = message.sequence + 1
                self._flood(self._local.mention())
            return
        if self._has_left(message.broker, message.incarnation):
            return
        version = message.incarnation, message.sequence
        if self._refuse_contradicted(sender, message.broker, version, self._remote.version_of(message.broker)):
            return
        if not self._may_need(sender, message):
            if len(self._unheard) < self._admission.brokers_max:
                self._unheard[message.broker] = sender, now
            return
        accepted, gap, fresh = self._remote.accept(message, sender, now)
        if gap:
            self._neighbours[sender].send(InterestRequest(message.broker))
        elif accepted:
            if fresh:
                news.needed.append((message.broker, fresh))
            if not self._remote.is_whole(message.broker):
                return
            if (better := self._remote.take_missed(message.broker, now)) is not None:
                self._neighbours[better].send(InterestRequest(message.broker))
            # Whoever lacks the set asks for it: it may be large, and most have it from another neighbour.
            is_last_part = message.base < 0 and message.part > 0
            if is_last_part:
                message = mention(message.broker, *self._remote.version_of(message.broker))
            self._flood(message, except_for=sender)

    def _refuse_contradicted(self, sender: str, broker: str, told: tuple[int, int], known: tuple[int, int]) -> bool:
        """Refuse, with True, what is told of an unproven incarnation where another is proven, of an incarnation of a
        neighbour later than the connected one, or under a sequence number that nobody could have reached."""
        incarnation = told[0]
        if not self.is_plausible_incarnation(broker, incarnation):
            self._proofs.miss(broker)
            return True
        neighbour = self._neighbours.get(broker)
        if neighbour is not None and broker != sender and neighbour.greeted and incarnation > neighbour.incarnation:
            return incarnation != self._proofs.incarnation_of(broker)
        return told[0] == known[0] and told[1] - known[1] >= LEAP_MAX

    def _may_need(self, sender: str, interest: InterestUpdate) -> bool:
        """Whether the interest of this incarnation is kept: the broker is present, or trusted to come back."""
        advert = self._table.adverts.get(interest.broker)
        if advert is None:
            return interest.broker == sender or self._admission.is_trusted(interest.broker)
        return interest.broker == sender or interest.incarnation <= advert.incarnation

    def _has_left(self, broker: str, incarnation: int) -> bool:
        """Whether this is an echo of a broker that has left for good since."""
        advert = self._table.adverts.get(broker)
        return advert is not None and advert.left and advert.incarnation >= incarnation

    def _hear_summary(self, sender: str, page: GossipSummary) -> None:
        neighbour = self._neighbours[sender]
        theirs = {entry.broker: entry for entry in page.known}
        for name in self._admission.nearest_first(
            name for name in self._told() if is_between(name, page.after, page.until)
        ):
            entry = theirs.get(name)
            advert = self._table.adverts.get(name)
            if advert is not None and (entry is None or entry.advert < (advert.incarnation, advert.sequence)):
                neighbour.send(advert)
            is_lacking = entry is None or entry.interest < self._interest_version(name)
            if is_lacking and self._whole_set(name) is not None:
                neighbour.want(name)

    def _whole_set(self, broker: str) -> WholeSet | None:
        return self._local.whole() if broker == self._me else self._remote.whole(broker)

    def _interest_version(self, broker: str) -> tuple[int, int]:
        if broker == self._me:
            return self._incarnation, self._local.sequence
        return self._remote.version_of(broker)

    def _pass_on(self, advert: Advert, except_for: str | None = None) -> None:
        """What another broker has said of its links: to all, or from an edge to those that it concerns."""
        self.tiers.pass_on(advert)
        self._flood(advert, except_for)

    def _flood(self, message: ControlMessage, except_for: str | None = None) -> None:
        if self.tiers.own_tier == EDGE_TIER and not self._is_own(message):
            return
        if self._flooded_now is None:
            self._flooded_now = [one for one in self._greeted() if not self.tiers.is_edge(one)]
        for neighbour in self._flooded_now:
            if neighbour.name == except_for:
                continue
            if isinstance(message, InterestUpdate) and (
                self.tiers.is_scoped(neighbour)
                or self.tiers.is_direct(neighbour)
                or neighbour.transfers.is_waiting(message.broker)
            ):
                continue  # edges are told otherwise; or the set that it is about to be told has the change
            neighbour.send(message)

    def _is_own(self, message: ControlMessage) -> bool:
        return isinstance(message, (Advert, InterestUpdate, IncarnationProof)) and message.broker == self._me

    def _greeted(self) -> list[Neighbour]:
        if self._greeted_now is None:
            names = sorted(self._neighbours)
            self._greeted_now = [self._neighbours[name] for name in names if self._neighbours[name].greeted]
        return self._greeted_now
