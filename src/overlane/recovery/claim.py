"""The claim: from the decision to become primary until it is primary, for a mirror and for a restarted primary.

    asking     compare-and-set to the next epoch, with this storage as primary; no frame is accepted any more (rule 5)
    writing    it has succeeded: the new epoch is written, behind all that was accepted before
    serving    that is on disk

The set of the next epoch is based on the known version; any earlier change of the znode makes it fail. While the
outcome is unknown the claim continues: accepting frames again could acknowledge batches that are lost.

Only a confirmed compare-and-set wins. A znode that contains the target may be from an earlier run of this process,
which has used the epoch: then the next one is claimed.
"""

from enum import Enum

from overlane.core.units import Nanos
from overlane.recovery.events import Effect, Position, Stored
from overlane.recovery.register import Register
from overlane.recovery.replica_set import Copy
from overlane.recovery.replication.own_storage import OwnStorage


class ClaimState(Enum):
    ASKING = "asking"
    WRITING = "writing"
    FAILED = "failed"
    WON = "won"


class Claim:
    def __init__(self, host: str, own: OwnStorage, register: Register) -> None:
        known = register.known
        if known is None or not register.is_settled:
            raise ValueError("a claim needs a replica set that is known")
        self.state = ClaimState.ASKING
        self.target = known.value.claimed(Copy(own.id, host))
        self.base = Position()
        """What is continued, when it is won."""
        self._own = own
        self._register = register
        self._write = 0

    @property
    def epoch(self) -> int:
        return self.target.epoch

    def start(self, now: Nanos) -> list[Effect]:
        return self._register.propose(self.target, now)

    def set_changed(self) -> list[Effect]:
        """The register has learnt something."""
        known = self._register.known
        if self.state is not ClaimState.ASKING or known is None or not self._register.is_settled:
            return []
        if known.value != self.target or known != self._register.confirmed:
            self.state = ClaimState.FAILED
            return []
        self.state = ClaimState.WRITING
        written = self._own.written
        self.base = written.position
        stored = Stored(written.storage, self.epoch, Position(self.epoch, written.position.sequence))
        effect = self._own.write(stored)
        self._write = effect.number
        return [effect]

    def committed(self) -> None:
        if self.state is ClaimState.WRITING and self._own.is_durable(self._write):
            self.state = ClaimState.WON
