"""Births: which life of which broker is proven.

Anybody may pass on what others have said, so a neighbour could tell of a later life of a broker that has none: newer
than all that the broker says itself, it would be believed for long. Where brokers have certificates each therefore
signs, once, that it lives under its incarnation. This is its birth. It goes ahead of everything else that the broker
says in that life, is kept by all and passed on once; a new neighbour tells which lives are proven to it, and is sent
the births that it lacks.

A birth that is true ends what was told of any later life. Of a broker that has proved a life, no later one is believed
until that is proven too; what was told of it meanwhile is asked for again then. Brokers that prove nothing are believed
as far as their neighbours are.

Who signs and who checks is told from outside (`Identity`). A check costs more than hearing does, so a neighbour that
shows false births is soon not heard on births for a while.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from overlane.core.messages import BROKERS_MAX, Birth, Proven
from overlane.core.units import SECOND, Nanos

FALSE_AT_ONCE = 64
FALSE_EVERY: Nanos = 1 * SECOND
"""So many false births of one neighbour are looked at in a row, and one more in each time like this."""


class Identity(Protocol):
    """Who this broker is, for those who have never met it, and who others are."""

    @property
    def proof(self) -> bytes | None:
        """That this broker lives under its incarnation, if it can be shown."""

    def is_born(self, broker: str, incarnation: int, proof: bytes) -> bool:
        """Whether the proof is true."""


@dataclass(slots=True)
class _Patience:
    """How many false births a neighbour may still show."""

    left: int = FALSE_AT_ONCE
    at: Nanos = 0

    def is_over(self, now: Nanos) -> bool:
        if self.left < FALSE_AT_ONCE and (regained := (now - self.at) // FALSE_EVERY):
            self.left, self.at = min(FALSE_AT_ONCE, self.left + regained), now
        return not self.left

    def lose(self, now: Nanos) -> None:
        if self.left == FALSE_AT_ONCE:
            self.at = now
        self.left -= 1


class Births:
    """Without an identity nothing is proven, told or taken."""

    def __init__(self, me: str, incarnation: int, identity: Identity | None) -> None:
        self._me = me
        self._identity = identity
        self._known: dict[str, Birth] = {}
        self._missed: set[str] = set()
        """Of whom a later life was told than is proven."""
        self._patience: dict[str, _Patience] = {}
        self.dropped = 0
        """What was told of lives that nobody had proved, and births that prove nothing."""
        if identity is not None and identity.proof is not None:
            self._known[me] = Birth(me, incarnation, identity.proof)

    def life_of(self, broker: str) -> int | None:
        """The life that is proven."""
        birth = self._known.get(broker)
        return None if birth is None else birth.incarnation

    def greeting(self) -> Iterator[Birth | Proven]:
        """What a new neighbour is told before anything else: that we live, and of whom we know so."""
        if (own := self._known.get(self._me)) is not None:
            yield own
        if self._identity is not None:
            yield Proven({name: self._known[name].incarnation for name in sorted(self._known)})

    def lacking(self, proven: Proven) -> list[Birth]:
        """The births that are news to the neighbour that told this; our own it knows from the greeting."""
        return [
            birth
            for name, birth in sorted(self._known.items())
            if name != self._me and birth.incarnation > proven.lives.get(name, -1)
        ]

    def accept(self, sender: str, birth: Birth, now: Nanos) -> bool:
        """Take a birth if it is news and true; say whether it was."""
        known = self._known.get(birth.broker)
        if self._identity is None or birth.broker == self._me:
            return False
        if known is not None and known.incarnation >= birth.incarnation:
            return False
        if known is None and len(self._known) >= BROKERS_MAX:
            return False
        patience = self._patience.setdefault(sender, _Patience())
        if patience.is_over(now) or not self._identity.is_born(birth.broker, birth.incarnation, birth.proof):
            if patience.left:
                patience.lose(now)
            self.dropped += 1
            return False
        self._known[birth.broker] = birth
        return True

    def miss(self, broker: str) -> None:
        """Something was told of an unproven life, and not believed."""
        self.dropped += 1
        self._missed.add(broker)

    def take_missed(self, broker: str) -> bool:
        """Whether that was so; it is asked for now."""
        is_missed = broker in self._missed
        self._missed.discard(broker)
        return is_missed

    def forget(self, broker: str) -> None:
        self._known.pop(broker, None)
        self._missed.discard(broker)
