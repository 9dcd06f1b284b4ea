"""Own name: whether another broker has the name of this one or of a neighbour, and whether to restart because of it.

Two brokers may have one name by mistake; what others say of the one then seems to be about the other. A later
incarnation of this broker that others know of may be its own, of before its store was lost: then it restarts with one
that is later still. Or it is another broker with its name, which shows by the links that others claim with it. So it
waits a moment before it restarts.
"""

from collections.abc import Mapping, Sized

from overlane.core.events import Effect, LaterIncarnationKnown, NameConflict
from overlane.core.gossip.broker_admission import BrokerAdmission
from overlane.core.gossip.incarnation import next_after
from overlane.core.gossip.incarnation_proofs import IncarnationProofs
from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.links.neighbour import Neighbour
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.core.wire.control_messages import Namesake

LATER_INCARNATION_AFTER: Nanos = 3 * SECOND
"""How long a broker waits before it restarts because of a later incarnation of its own."""
CONFLICT_TOLD_EVERY: Nanos = 60 * SECOND


class OwnName:
    def __init__(
        self,
        me: str,
        incarnation: int,
        neighbours: Mapping[str, Neighbour],
        table: LinkStateTable,
        proofs: IncarnationProofs,
        admission: BrokerAdmission,
    ) -> None:
        self._me = me
        self._incarnation = incarnation
        self._neighbours = neighbours
        self._table = table
        self._proofs = proofs
        self._admission = admission
        self._later_incarnation: tuple[int, str, Nanos] | None = None
        """The incarnation to restart with because others know a later one than this, its sender, and since when."""
        self._namesakes: set[str] = set()
        """Who claimed at the last sweep to be linked with a broker of our name that is not this one."""
        self._conflict_told_at: dict[str, Nanos] = {}
        self.conflicts = 0
        self._effects: list[Effect] = []
        self.pending: Sized = self._effects

    def take_effects(self) -> list[Effect]:
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    def look(self, now: Nanos) -> None:
        """Check whether another broker has our name, and whether we must restart with a later incarnation."""
        namesakes = set(self._admission.linked_elsewhere())
        lasting = sorted(namesakes & self._namesakes)
        self._namesakes = namesakes
        for where in lasting[:1]:
            self.conflict(self._me, f"{where} says that it is linked with it", now)
        if self._later_incarnation is None or now - self._later_incarnation[2] < LATER_INCARNATION_AFTER:
            return
        incarnation, sender, _ = self._later_incarnation
        if not namesakes:
            self._later_incarnation = None
            self._effects.append(LaterIncarnationKnown(incarnation, sender))

    def conflict(self, broker: str, detail: str, now: Nanos) -> None:
        """Two brokers have one name: ours or that of a neighbour."""
        self.conflicts += 1
        if now >= self._conflict_told_at.get(broker, -NEVER) + CONFLICT_TOLD_EVERY:
            self._conflict_told_at[broker] = now
            self._effects.append(NameConflict(broker, detail))

    def namesake(self, peer: str, address: str, now: Nanos) -> None:
        """Another broker with the name of a neighbour wanted to link with us, and was refused."""
        self.conflict(peer, f"the one at {address} was refused", now)
        if (neighbour := self._neighbours.get(peer)) is not None and neighbour.greeted:
            neighbour.send(Namesake(f"one at {address} was refused by {self._me}"))

    def linked_as_another(self, broker: str, instance: int) -> str | None:
        """With whom another instance of a broker is linked, if there is one. The same one was only restarted, wherever;
        who continues a broker on another host continues its instance."""
        known = self._table.adverts.get(broker)
        if known is None or known.left or not known.instance or not instance or known.instance == instance:
            return None
        return self._admission.linked_with(broker)

    def heard_of(self, sender: str, incarnation: int, now: Nanos, *, is_proven: bool = False) -> None:
        """Somebody knows an incarnation of ours. If incarnations are proven, only proven ones count."""
        if incarnation <= self._incarnation or (self._proofs.proves and not is_proven):
            return
        following = next_after(incarnation, self._incarnation)
        if following is None:
            return
        since = now if self._later_incarnation is None else self._later_incarnation[2]
        if self._later_incarnation is None or following > self._later_incarnation[0]:
            self._later_incarnation = following, sender, since
