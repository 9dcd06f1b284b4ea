"""Link state: what every broker knows about every link.

Each broker advertises its own links under a growing (incarnation, sequence); the newest advertisement per broker
wins and is passed on once. A link counts only while both ends claim it. Adverts of brokers from which nothing was
heard for long age out. The map for the path solver is made when it is asked for, once per change.

A broker's own advert is sent at once on real change, but not faster than a gap that doubles while changes keep
coming, and is repeated slowly when nothing changes. Nothing here reads a clock: it is told the time.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from overlane.core.linkhealth import LinkState
from overlane.core.messages import Advert, LinkClaim
from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.planning import paths

REFRESH_EVERY: Nanos = 60 * SECOND
FORGET_AFTER: Nanos = 200 * SECOND
GAP_MIN: Nanos = 20 * MS
GAP_MAX: Nanos = 2 * SECOND
CALM_AFTER: Nanos = 5 * SECOND

_LOSS_STEPS = (10_000, 30_000, 80_000, 200_000, 400_000)
MILLION = 1_000_000


class LinkStateTable:
    """All adverts, the map drawn from them, and when they were heard."""

    def __init__(self, me: str) -> None:
        self._me = me
        self.adverts: dict[str, Advert] = {}
        self._heard_at: dict[str, Nanos] = {}
        self._by_peer: dict[str, dict[str, LinkClaim]] = {}
        self.changes = 0
        """Grows whenever the map changes; whoever draws conclusions from the map remembers it."""
        self._drawn = -1
        self._maps: dict[tuple[bool, str], paths.Network] = {}
        self._labels: set[str] = set()
        self._suspicious = False

    def version_of(self, broker: str) -> tuple[int, int]:
        advert = self.adverts.get(broker)
        return (advert.incarnation, advert.sequence) if advert else (0, 0)

    def accept(self, advert: Advert, now: Nanos) -> bool:
        """Take an advert if it is news; say whether it was."""
        known = self.adverts.get(advert.broker)
        if known is not None and (known.incarnation, known.sequence) >= (advert.incarnation, advert.sequence):
            return False
        self.adverts[advert.broker] = advert
        self._by_peer.pop(advert.broker, None)
        self._heard_at[advert.broker] = now
        if known is None or _matter(known) != _matter(advert):
            self.changes += 1
        return True

    def forget_silent(self, now: Nanos) -> list[str]:
        """Brokers that have not been heard of for too long are no longer part of the map."""
        gone = [name for name, at in self._heard_at.items() if now - at > FORGET_AFTER and name != self._me]
        for name in gone:
            del self.adverts[name], self._heard_at[name]
            self._by_peer.pop(name, None)
        if gone:
            self.changes += 1
        return sorted(gone)

    def claim(self, one: str, other: str) -> LinkClaim | None:
        """What `one` says of its link to `other`, if the link counts."""
        forth, back = self._claims(one).get(other), self._claims(other).get(one)
        if forth is None or back is None or LinkState.FAILED in (forth.state, back.state):
            return None
        return forth

    def suspect(self, one: str, other: str) -> bool:
        forth, back = self._claims(one).get(other), self._claims(other).get(one)
        return LinkState.SUSPECT in (forth and forth.state, back and back.state)

    def claims(self) -> Iterable[tuple[str, LinkClaim]]:
        """Every link that counts, in each direction, by the broker it leaves."""
        for name in sorted(self.adverts):
            for link in self.adverts[name].links:
                if self.claim(name, link.peer) is not None:
                    yield name, link

    def network(self, suspects: bool, label: str = "") -> paths.Network:
        """The map as the path solver wants it, with or without the links that are suspect, as a QoS class sees it."""
        if self._drawn != self.changes:
            self._drawn, self._maps = self.changes, {}
            self._labels = {label for advert in self.adverts.values() for label in advert.processing_us}
            self._suspicious = any(link.state == LinkState.SUSPECT for _, link in self.claims())
        key = suspects or not self._suspicious, label if label in self._labels else ""
        found = self._maps.get(key)
        if found is None:
            found = self._maps[key] = self._draw(*key)
        return found

    def processing_ns(self, broker: str, label: str) -> Nanos:
        """How long a message of this class stays in a broker, by its own measurement."""
        advert = self.adverts.get(broker)
        return 0 if advert is None else advert.processing_us.get(label, 0) * US

    def _claims(self, broker: str) -> Mapping[str, LinkClaim]:
        claims = self._by_peer.get(broker)
        if claims is None:
            advert = self.adverts.get(broker)
            claims = {} if advert is None or advert.left else {link.peer: link for link in advert.links}
            self._by_peer[broker] = claims
        return claims

    def _draw(self, suspects: bool, label: str) -> paths.Network:
        claims = {name: self._claims(name) for name in sorted(self.adverts)}
        worst = LinkState.SUSPECT if suspects else LinkState.UP
        links = []
        for one, of_one in claims.items():
            for other, forth in of_one.items():
                back = claims.get(other, {}).get(one)
                if one > other or back is None or max(forth.state, back.state) > worst:
                    continue
                links.append(
                    paths.Link(
                        (one, other),
                        forth.latency_us * US,
                        back.latency_us * US,
                        max(forth.risk_millionths, back.risk_millionths) / MILLION,
                    )
                )
        brokers = [
            paths.Broker(name, self.processing_ns(name, label), advert.failure_millionths / MILLION)
            for name, advert in sorted(self.adverts.items())
            if not advert.left
        ]
        return paths.Network.build(brokers, links)


class Announcer:
    """When to advertise one's own links: at once on real change, slowly otherwise, never in a flood."""

    def __init__(self) -> None:
        self._said: Advert | None = None
        self._said_at: Nanos = -NEVER
        self._gap: Nanos = GAP_MIN
        self._pending_at: Nanos = NEVER

    def next_deadline(self) -> Nanos:
        return min(self._pending_at, NEVER if self._said is None else self._said_at + REFRESH_EVERY)

    def consider(self, advert: Advert, now: Nanos) -> bool:
        """Whether this advert should go out now; if it must wait, `next_deadline` tells when to ask again."""
        said = self._said
        if said is None or now >= self._said_at + REFRESH_EVERY or advert.left:
            return True
        if not _is_real_change(said, advert):
            self._pending_at = NEVER
            return False
        if now < self._said_at + self._gap:
            self._pending_at = self._said_at + self._gap
            return False
        return True

    def said(self, advert: Advert, now: Nanos) -> None:
        calm = now - self._said_at > CALM_AFTER
        self._gap = GAP_MIN if calm else min(GAP_MAX, 2 * self._gap)
        self._said, self._said_at, self._pending_at = advert, now, NEVER


def _matter(advert: Advert) -> tuple[object, ...]:
    """What of an advert the map depends on."""
    return advert.links, advert.processing_us, advert.failure_millionths, advert.left


def _is_real_change(before: Advert, after: Advert) -> bool:
    old, new = ({link.peer: link for link in advert.links} for advert in (before, after))
    if old.keys() != new.keys() or any(differs(old[peer], link) for peer, link in new.items()):
        return True
    labels = before.processing_us.keys() | after.processing_us.keys()
    return any(
        processing_differs(before.processing_us.get(label, 0), after.processing_us.get(label, 0)) for label in labels
    )


def processing_differs(old_us: int, new_us: int) -> bool:
    return abs(new_us - old_us) > max(2000, old_us // 2)


def differs(old: LinkClaim, new: LinkClaim) -> bool:
    """Whether a claim has really changed, and not just by a hair."""
    return (
        old.state != new.state
        or abs(new.latency_us - old.latency_us) > max(1000, old.latency_us // 5)
        or _step(old.loss_millionths) != _step(new.loss_millionths)
        or _step(old.risk_millionths) != _step(new.risk_millionths)
    )


def _step(millionths: int) -> int:
    return bisect_right(_LOSS_STEPS, millionths)
