"""Gossip: how link state and interest reach every broker.

Adverts and changes of interest are flooded: what is news is kept and passed on to every neighbour but the one it
came from; what is old is answered with what is newer, or its sender would never learn. A new neighbour first tells
in a summary what it knows, and gets what it lacks: a broker that was away catches up by this alone.

Anybody may pass on what others have said, so a neighbour that lies can speak in their name. A broker that hears more of
itself than it has said says it anew, louder. What is said of a neighbour by others is not believed where it would be of
a later life than the one in which that neighbour is here, nor what is numbered as nobody could have counted. Where
brokers prove their lives (`births`), what is proven prevails over all that is told of later ones, whoever was first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from overlane.core.births import Births
from overlane.core.interest import LocalInterest, RemoteInterest, in_parts
from overlane.core.linkstate import Announcer, LinkStateTable
from overlane.core.messages import Advert, Birth, Interest, InterestWanted, Known, LinkClaim, Message, Proven, Summary
from overlane.core.neighbour import Neighbour
from overlane.core.units import Nanos

LEAP_MAX = 1 << 32
"""Nobody has said so much in one life: numbers farther ahead are not followed, or there would be none left."""


@dataclass(slots=True)
class News:
    """What gossip means to the rest of the broker."""

    needed: list[tuple[str, list[str]]] = field(default_factory=list)
    """Brokers that newly need topic filters."""
    left: list[str] = field(default_factory=list)
    restarted: list[tuple[str, int]] = field(default_factory=list)
    proven: list[tuple[str, int]] = field(default_factory=list)
    """Lives of brokers; what was told of others is not so."""


class Gossip:
    def __init__(
        self,
        me: str,
        incarnation: int,
        neighbours: Mapping[str, Neighbour],
        table: LinkStateTable,
        local: LocalInterest,
        remote: RemoteInterest,
        births: Births,
    ) -> None:
        self._me = me
        self._incarnation = incarnation
        self._neighbours = neighbours
        self._table = table
        self._local = local
        self._remote = remote
        self._births = births
        self._announcer = Announcer()
        self._sequence = 0
        self._is_taken_for_gone = False
        """Somebody said that we left, and who believes that has forgotten what we need."""

    def next_deadline(self) -> Nanos:
        return self._announcer.next_deadline()

    def greet(self, neighbour: Neighbour) -> None:
        """A new neighbour: tell it what we know, so that it can tell us what we do not."""
        for message in self._births.greeting():
            neighbour.send(message)
        self._sum_up(neighbour)

    def _sum_up(self, neighbour: Neighbour) -> None:
        names = sorted({*self._table.adverts, *self._remote.brokers(), self._me})
        neighbour.send(
            Summary([Known(name, self._table.version_of(name), self._interest_version(name)) for name in names])
        )

    def announce(
        self, links: list[LinkClaim], processing_us: dict[str, int], failure: int, left: bool, now: Nanos
    ) -> bool:
        """Advertise our own links if that is due; True if it was."""
        advert = Advert(self._me, self._incarnation, self._sequence + 1, links, processing_us, failure, left)
        if not self._announcer.consider(advert, now):
            return False
        self._sequence += 1
        self._announcer.said(advert, now)
        self._table.accept(advert, now)
        self._flood(advert)
        if self._is_taken_for_gone:
            self._is_taken_for_gone = False
            self._local.sequence += 1
            self._flood(self._local.everything())
        return True

    def tell_interest(self) -> None:
        """Tell the others what changed in what we need."""
        if (news := self._local.news()) is not None:
            self._flood(news)

    def forget(self, silent: list[str]) -> None:
        """Brokers are no longer on the map. While one is kept something for, it stays known which life that is of."""
        for broker in silent:
            if not self._remote.is_needy(broker):
                self._births.forget(broker)

    def may_live(self, broker: str, incarnation: int) -> bool:
        """Whether nothing that is proven contradicts this life of a broker. A neighbour's own greeting proves it too,
        but only here."""
        proven = self._births.life_of(broker)
        if proven is None or incarnation <= proven:
            return True
        neighbour = self._neighbours.get(broker)
        return neighbour is not None and neighbour.greeted and incarnation <= neighbour.incarnation

    def hear(
        self, sender: str, message: Advert | Interest | InterestWanted | Summary | Birth | Proven, now: Nanos
    ) -> News:
        news = News()
        match message:
            case Advert():
                self._hear_advert(sender, message, news, now)
            case Interest():
                self._hear_interest(sender, message, news)
            case InterestWanted(broker):
                if (everything := self._everything(broker)) is not None:
                    self._tell(self._neighbours[sender], everything)
            case Summary(known):
                self._hear_summary(sender, known)
            case Birth():
                self._hear_birth(sender, message, news, now)
            case Proven():
                for birth in self._births.lacking(message):
                    self._neighbours[sender].send(birth)
        return news

    def _hear_birth(self, sender: str, birth: Birth, news: News, now: Nanos) -> None:
        broker, life = birth.broker, birth.incarnation
        neighbour = self._neighbours.get(broker)
        if neighbour is not None and neighbour.greeted and life < neighbour.incarnation:
            return  # it has begun another life since: here it is
        if not self._births.accept(sender, birth, now):
            return
        self._flood(birth, except_for=sender)
        news.proven.append((broker, life))
        advert, needs_life = self._table.adverts.get(broker), self._remote.version_of(broker)[0]
        is_lie = advert is not None and advert.incarnation > life
        if is_lie:
            self._table.forget(broker)
        if needs_life > life or (is_lie and advert is not None and advert.left):
            self._remote.disown(broker)
        if self._births.take_missed(broker) or is_lie or needs_life > life:
            # What the broker says itself may have been told before, in vain; and the sender may be the one that lied.
            for neighbour in self._greeted():
                self._sum_up(neighbour)

    def _hear_advert(self, sender: str, advert: Advert, news: News, now: Nanos) -> None:
        if advert.broker == self._me:
            if advert.incarnation == self._incarnation and 0 < advert.sequence - self._sequence < LEAP_MAX:
                self._sequence = advert.sequence
                self._announcer.speak_up()
                self._is_taken_for_gone |= advert.left
            return
        version = advert.incarnation, advert.sequence
        if self._is_contradicted(sender, advert.broker, version, self._table.version_of(advert.broker)):
            return
        life_before = self._table.version_of(advert.broker)[0]
        if self._table.accept(advert, now):
            if advert.incarnation > life_before:
                news.restarted.append((advert.broker, advert.incarnation))
            if advert.left:
                self._remote.forget(advert.broker)
                news.left.append(advert.broker)
            self._flood(advert, except_for=sender)
            return
        newest = self._table.adverts[advert.broker]
        if (newest.incarnation, newest.sequence) > (advert.incarnation, advert.sequence):
            self._neighbours[sender].send(newest)

    def _hear_interest(self, sender: str, message: Interest, news: News) -> None:
        whole = self._neighbours[sender].assembly.add(message)
        if whole is not None and message.broker == self._me:
            if message.incarnation == self._incarnation and 0 < message.sequence - self._local.sequence < LEAP_MAX:
                self._local.sequence = message.sequence + 1
                self._flood(self._local.everything())
            return
        if whole is None or self._has_left(message.broker, message.incarnation):
            return
        version = message.incarnation, message.sequence
        if self._is_contradicted(sender, message.broker, version, self._remote.version_of(message.broker)):
            return
        message = whole
        accepted, gap, fresh = self._remote.accept(message)
        if gap:
            self._neighbours[sender].send(InterestWanted(message.broker))
        elif accepted:
            if fresh:
                news.needed.append((message.broker, fresh))
            self._flood(message, except_for=sender)

    def _is_contradicted(self, sender: str, broker: str, told: tuple[int, int], known: tuple[int, int]) -> bool:
        """Whether somebody tells of a life that is not proven where another is, or of one of a neighbour that is not
        the one in which it is here, or of numbers out of all proportion to those before."""
        life = told[0]
        if not self.may_live(broker, life):
            self._births.miss(broker)
            return True
        neighbour = self._neighbours.get(broker)
        if neighbour is not None and broker != sender and neighbour.greeted and life > neighbour.incarnation:
            return life != self._births.life_of(broker)
        return told[0] == known[0] and told[1] - known[1] >= LEAP_MAX

    def _has_left(self, broker: str, incarnation: int) -> bool:
        """Whether this is an echo of a broker that has left for good since."""
        advert = self._table.adverts.get(broker)
        return advert is not None and advert.left and advert.incarnation >= incarnation

    def _hear_summary(self, sender: str, known: list[Known]) -> None:
        neighbour = self._neighbours[sender]
        theirs = {entry.broker: entry for entry in known}
        for name in sorted({*self._table.adverts, *self._remote.brokers(), self._me}):
            entry = theirs.get(name)
            advert = self._table.adverts.get(name)
            if advert is not None and (entry is None or entry.advert < (advert.incarnation, advert.sequence)):
                neighbour.send(advert)
            if entry is None or entry.interest < self._interest_version(name):
                everything = self._everything(name)
                if everything is not None:
                    self._tell(neighbour, everything)

    def _everything(self, broker: str) -> Interest | None:
        return self._local.everything() if broker == self._me else self._remote.everything(broker)

    def _interest_version(self, broker: str) -> tuple[int, int]:
        if broker == self._me:
            return self._incarnation, self._local.sequence
        return self._remote.version_of(broker)

    def _flood(self, message: Message, except_for: str | None = None) -> None:
        for neighbour in self._greeted():
            if neighbour.name != except_for:
                self._tell(neighbour, message)

    def _greeted(self) -> list[Neighbour]:
        return [self._neighbours[name] for name in sorted(self._neighbours) if self._neighbours[name].greeted]

    @staticmethod
    def _tell(neighbour: Neighbour, message: Message) -> None:
        for part in in_parts(message) if isinstance(message, Interest) else (message,):
            neighbour.send(part)
