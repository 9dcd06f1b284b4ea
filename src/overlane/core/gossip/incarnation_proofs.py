"""Incarnation proofs: the proven incarnations of brokers.

Any broker may forward information of others. So a neighbour could announce a later incarnation of another broker that
does not exist; it would be newer than all information from the broker itself. With certificates, each broker signs its
incarnation once. This proof is sent before all other information of that incarnation. All brokers store it and forward
it once. A new neighbour lists the incarnations that are proven to it and gets the missing proofs.

A valid proof invalidates all information about a later incarnation. After a broker has proved one incarnation, no later
one is accepted without a proof; refused information is requested again when the proof arrives. Brokers without proofs
are trusted as far as their neighbours are.

Signing and verifying is the driver's (`BrokerIdentity`). A verification costs more than reading a message, so the
number of invalid proofs that are verified per neighbour is limited.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from overlane.core.units import SECOND, Nanos
from overlane.core.wire.control_messages import IncarnationProof, ProvenIncarnations, is_between, pages
from overlane.core.wire.message_fields import BROKERS_MAX

FALSE_AT_ONCE = 64
FALSE_EVERY: Nanos = 1 * SECOND
"""So many invalid proofs of one neighbour are verified in a row, and one more per such period."""


class BrokerIdentity(Protocol):
    """Who this broker is, for those who have never met it, and who others are."""

    @property
    def proof(self) -> bytes | None:
        """The proof of this broker's own incarnation, if there is one."""

    def is_valid_proof(self, broker: str, incarnation: int, proof: bytes) -> bool:
        """Whether the proof is valid."""


@dataclass(slots=True)
class _FalseProofBudget:
    """A token bucket: how many invalid proofs of a neighbour are still verified."""

    left: int = FALSE_AT_ONCE
    at: Nanos = 0

    def refill_and_check(self, now: Nanos) -> bool:
        """Whether the budget is used up, after it was refilled for the time that passed."""
        if self.left < FALSE_AT_ONCE and (regained := (now - self.at) // FALSE_EVERY):
            self.left, self.at = min(FALSE_AT_ONCE, self.left + regained), now
        return not self.left

    def spend(self, now: Nanos) -> None:
        if self.left == FALSE_AT_ONCE:
            self.at = now
        self.left -= 1


class IncarnationProofs:
    """Without an identity nothing is proven, told or taken."""

    def __init__(self, me: str, incarnation: int, identity: BrokerIdentity | None) -> None:
        self._me = me
        self._identity = identity
        self._known: dict[str, IncarnationProof] = {}
        self._missed: set[str] = set()
        """Brokers of which a later incarnation was announced than is proven."""
        self._false_proof_budgets: dict[str, _FalseProofBudget] = {}
        self.dropped = 0
        """Statements about unproven incarnations, and invalid proofs."""
        if identity is not None and identity.proof is not None:
            self._known[me] = IncarnationProof(me, incarnation, identity.proof)

    def incarnation_of(self, broker: str) -> int | None:
        """The incarnation that is proven, if any."""
        proof = self._known.get(broker)
        return None if proof is None else proof.incarnation

    def proof_of(self, broker: str) -> IncarnationProof | None:
        return self._known.get(broker)

    def greeting(self) -> Iterator[IncarnationProof | ProvenIncarnations]:
        """What a new neighbour is told before anything else: that we live, and of whom we know so."""
        if (own := self._known.get(self._me)) is not None:
            yield own
        if self._identity is not None:
            for page, after, until in pages(sorted(self._known)):
                yield ProvenIncarnations({name: self._known[name].incarnation for name in page}, after, until)

    def lacking(self, proven: ProvenIncarnations) -> list[IncarnationProof]:
        """The proofs that are news to the neighbour that told this; our own it knows from the greeting."""
        return [
            proof
            for name, proof in sorted(self._known.items())
            if name != self._me
            and is_between(name, proven.after, proven.until)
            and proof.incarnation > proven.incarnations.get(name, -1)
        ]

    def accept(self, sender: str, proof: IncarnationProof, now: Nanos) -> bool:
        """Take a proof if it is news and true; say whether it was."""
        known = self._known.get(proof.broker)
        if self._identity is None or proof.broker == self._me:
            return False
        if known is not None and known.incarnation >= proof.incarnation:
            return False
        if known is None and len(self._known) >= BROKERS_MAX:
            return False
        if not self.verify(sender, proof, now):
            return False
        self._known[proof.broker] = proof
        return True

    @property
    def proves(self) -> bool:
        """Whether incarnations are proven here at all."""
        return self._identity is not None

    def verify(self, sender: str, proof: IncarnationProof, now: Nanos) -> bool:
        """Whether a proof holds; checks of false ones are limited."""
        if self._identity is None:
            return False
        budget = self._false_proof_budgets.setdefault(sender, _FalseProofBudget())
        if budget.refill_and_check(now) or not self._identity.is_valid_proof(
            proof.broker, proof.incarnation, proof.proof
        ):
            if budget.left:
                budget.spend(now)
            self.dropped += 1
            return False
        return True

    def miss(self, broker: str) -> None:
        """A statement about an unproven incarnation was refused."""
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
