"""Link state: what every broker knows about every link.

Each broker advertises its own links under a growing (incarnation, sequence); the newest advert per broker wins and is
passed on once. Adverts of brokers that were silent for long expire. The map for the path solver is made on demand, once
per change.

A broker's own advert is sent at once after a significant change, but not faster than a gap that doubles while changes
keep coming. When nothing changes it is repeated, in time before its lifetime ends. The more brokers there are, the
longer adverts live, so that all brokers together repeat no more of them in a large overlay than in a small one; that a
broker is gone is told by its neighbours. Nothing here reads a clock: the time is an argument.

Drawing a map takes time in proportion to its links. Changes that come close together are therefore drawn together, so
that drawing takes only a part of the time, however large the map is and however often it changes.
"""

from bisect import bisect_right

from overlane.core.gossip.network_map import NetworkMap, draw, matter_of
from overlane.core.links.processing_latency import processing_differs
from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.core.wire.control_messages import Advert, LinkClaim
from overlane.core.wire.message_fields import LIFETIME_S, LIFETIME_S_MAX

FORGET_AFTER: Nanos = LIFETIME_S * SECOND
REFRESHED_PART = 3, 10
"""After which part of its lifetime an advert is repeated: two in a row may be lost."""
REFRESH_EVERY: Nanos = FORGET_AFTER * REFRESHED_PART[0] // REFRESHED_PART[1]
LIFETIME_S_PER_BROKER = 10
REMEMBER_LEFT: Nanos = 7 * 86_400 * SECOND
"""That a broker left for good is remembered, so that one that was away in the meantime hears of it."""
GAP_MIN: Nanos = 20 * MS
GAP_MAX: Nanos = 500 * MS
CALM_AFTER: Nanos = 1 * SECOND
"""Changes that come farther apart than this do not keep coming: what happens to several links is told in one go."""

DRAW_PER_LINK: Nanos = 32 * US
DRAWN_AT_ONCE = 400
"""How far apart maps are drawn, for each link beyond so many: it takes about a quarter of that."""

_LOSS_STEPS = (10_000, 30_000, 80_000, 200_000, 400_000)


def lifetime_s_for(brokers: int) -> int:
    """How long an advert counts in an overlay of so many brokers."""
    return min(max(LIFETIME_S, LIFETIME_S_PER_BROKER * brokers), LIFETIME_S_MAX)


def gap_for(links: int) -> Nanos:
    """How long to wait from one look at all links to the next."""
    return max(0, links - DRAWN_AT_ONCE) * DRAW_PER_LINK


class LinkStateTable:
    """All adverts, the map drawn from them, and when they were heard."""

    def __init__(self, me: str) -> None:
        self._me = me
        self.adverts: dict[str, Advert] = {}
        self._heard_at: dict[str, Nanos] = {}
        self._matter: dict[str, bytes] = {}
        self.changes = 0
        """Grows whenever the map changes; whoever draws conclusions from the map remembers it."""
        self._links = 0
        self._changed_at: Nanos = -NEVER
        self.has_news = False
        """More has changed since, and is not on the map yet."""
        self._drawn = -1
        self._map = draw(())

    def version_of(self, broker: str) -> tuple[int, int]:
        advert = self.adverts.get(broker)
        return (advert.incarnation, advert.sequence) if advert else (0, 0)

    def accept(self, advert: Advert, now: Nanos) -> bool:
        """Take an advert if it is news; say whether it was."""
        known = self.adverts.get(advert.broker)
        if known is not None and (known.incarnation, known.sequence) >= (advert.incarnation, advert.sequence):
            return False
        self._links += len(advert.links) - (0 if known is None else len(known.links))
        self.adverts[advert.broker] = advert
        self._heard_at[advert.broker] = now
        matter = matter_of(advert)
        if self._matter.get(advert.broker) != matter:
            self._matter[advert.broker] = matter
            self._change(now)
        return True

    def forget(self, broker: str, now: Nanos) -> None:
        """Whatever was told of a broker."""
        self._links -= len(self.adverts[broker].links)
        del self.adverts[broker], self._heard_at[broker], self._matter[broker]
        self._change(now)

    def heard_at(self, broker: str) -> Nanos:
        return self._heard_at[broker]

    def next_deadline(self) -> Nanos:
        return self._changed_at + gap_for(self._links) if self.has_news else NEVER

    def settle(self, now: Nanos) -> None:
        """Put on the map what had to wait."""
        if self.has_news:
            self._change(now)

    def _change(self, now: Nanos) -> None:
        self.has_news = True
        if now >= self.next_deadline():
            self.has_news = False
            self._changed_at = now
            self.changes += 1

    def forget_silent(self, now: Nanos) -> list[str]:
        """Brokers whose adverts have come to the end of their lifetime are no longer part of the map."""
        gone = [
            name
            for name, at in self._heard_at.items()
            if name != self._me and now - at > _counts_for(self.adverts[name])
        ]
        for name in gone:
            self.forget(name, now)
        return sorted(gone)

    @property
    def map(self) -> NetworkMap:
        """What all adverts together say; the same object until they say something else."""
        if self._drawn != self.changes:
            self._drawn = self.changes
            before, self._map = self._map, draw(tuple(self._matter[name] for name in sorted(self._matter)))
            self._map.follow(before)
        return self._map


class AdvertThrottle:
    """When to advertise one's own links: at once on real change, slowly otherwise, never in a flood."""

    def __init__(self) -> None:
        self._said: Advert | None = None
        self._said_at: Nanos = -NEVER
        self._gap: Nanos = GAP_MIN
        self._pending_at: Nanos = NEVER
        self._refresh_at: Nanos = NEVER

    def next_deadline(self) -> Nanos:
        return min(self._pending_at, self._refresh_at)

    def must_wait(self, now: Nanos) -> bool:
        """Whether an advert would have to wait, whatever it says; then `next_deadline` tells when to ask again."""
        if self._said is None or now >= self._refresh_at or now >= self._said_at + self._gap:
            return False
        self._pending_at = self._said_at + self._gap
        return True

    def consider(self, advert: Advert, now: Nanos) -> bool:
        """Whether this advert should go out now; if it must wait, `next_deadline` tells when to ask again."""
        said = self._said
        if said is None or now >= self._refresh_at or advert.left:
            return True
        if not _is_real_change(said, advert):
            self._pending_at = NEVER
            return False
        if now < self._said_at + self._gap:
            self._pending_at = self._said_at + self._gap
            return False
        return True

    def speak_up(self) -> None:
        """What was said may not be believed: say it again, now."""
        self._said, self._pending_at, self._refresh_at = None, -NEVER, NEVER

    def said(self, advert: Advert, now: Nanos) -> None:
        calm = now - self._said_at > CALM_AFTER
        self._gap = GAP_MIN if calm else min(GAP_MAX, 2 * self._gap)
        self._said, self._said_at, self._pending_at = advert, now, NEVER
        self._refresh_at = now + advert.lifetime_s * SECOND * REFRESHED_PART[0] // REFRESHED_PART[1]


def _counts_for(advert: Advert) -> Nanos:
    """How long after it was heard."""
    return REMEMBER_LEFT if advert.left else advert.lifetime_s * SECOND


def _is_real_change(before: Advert, after: Advert) -> bool:
    old, new = ({link.peer: link for link in advert.links} for advert in (before, after))
    if old.keys() != new.keys() or any(differs(old[peer], link) for peer, link in new.items()):
        return True
    return is_other_broker(before, after)


def is_other_broker(before: Advert, after: Advert) -> bool:
    """Whether what an advert says of the broker itself has really changed."""
    if before.failure_millionths != after.failure_millionths:
        return True
    labels = before.processing_us.keys() | after.processing_us.keys()
    return any(
        processing_differs(before.processing_us.get(label, 0), after.processing_us.get(label, 0)) for label in labels
    )


def differs(old: LinkClaim, new: LinkClaim) -> bool:
    """Whether a claim has really changed, and not just by a hair."""
    return (
        old.state != new.state
        or old.encrypted != new.encrypted
        or abs(new.latency_us - old.latency_us) > max(1000, old.latency_us // 5)
        or _step(old.loss_millionths) != _step(new.loss_millionths)
        or old.risk_millionths != new.risk_millionths  # told by people or plans: never by a hair
        or abs(new.swing_us - old.swing_us) > max(2000, old.swing_us // 4)
    )


def _step(millionths: int) -> int:
    return bisect_right(_LOSS_STEPS, millionths)
