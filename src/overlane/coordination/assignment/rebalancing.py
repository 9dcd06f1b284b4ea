"""Rebalancing: when bundles move between routing brokers that live. Seldom, few, and not back and forth.

Loads are looked at in rounds. A round moves bundles only where the gap between the most and the least loaded broker has
been above 40 % in two rounds in a row, or above 15 % in eight; where the move leaves at most half of the gap; at most a
tenth of the bundles; and none that was moved within the last three minutes. Bundles of a broker that is leaving move
regardless of the gap, as many at a time.
"""

from dataclasses import dataclass, field

from overlane.coordination.assignment.placement import Strategy, Tier, place_in_turn
from overlane.core.units import SECOND, Nanos

GAP_LARGE, ROUNDS_LARGE = 0.40, 2
GAP_SMALL, ROUNDS_SMALL = 0.15, 8
MOVED_PART_MAX = 0.1
REST: Nanos = 180 * SECOND


@dataclass(frozen=True, slots=True)
class Move:
    bundle: int
    source: str
    target: str
    why: str


@dataclass(slots=True)
class Rebalancer:
    large_rounds: int = 0
    small_rounds: int = 0
    """For how many rounds in a row the gap was above each limit."""
    _moved_at: dict[int, Nanos] = field(default_factory=dict)

    def round(self, tier: Tier, strategy: Strategy, now: Nanos) -> list[Move]:
        """The moves of this round. The caller makes them, all or none, and calls again when they are done."""
        self._moved_at = {bundle: at for bundle, at in self._moved_at.items() if now - at < REST}
        count_max = max(1, int(MOVED_PART_MAX * len(tier.assigned)))
        moves = self._drain(tier, strategy, count_max)
        if not moves:
            moves = self._level(tier, count_max)
        for move in moves:
            self._moved_at[move.bundle] = now
        return moves

    def _drain(self, tier: Tier, strategy: Strategy, count_max: int) -> list[Move]:
        leaving = {name for name, broker in tier.brokers.items() if broker.is_leaving}
        bundles = sorted(bundle for bundle, broker in tier.assigned.items() if broker in leaving)[:count_max]
        known = [tier.bundles[bundle] for bundle in bundles if bundle in tier.bundles]
        targets = place_in_turn(known, tier, strategy)
        return [Move(one, tier.assigned[one], to, "its broker is leaving") for one, to in targets.items()]

    def _level(self, tier: Tier, count_max: int) -> list[Move]:
        loads = tier.expected_loads()
        if len(loads) < 2:
            self.large_rounds = self.small_rounds = 0
            return []
        gap = max(loads.values()) - min(loads.values())
        self.large_rounds = self.large_rounds + 1 if gap > GAP_LARGE else 0
        self.small_rounds = self.small_rounds + 1 if gap > GAP_SMALL else 0
        if self.large_rounds < ROUNDS_LARGE and self.small_rounds < ROUNDS_SMALL:
            return []
        moves = self._moves(tier, loads, count_max)
        if moves:
            self.large_rounds = self.small_rounds = 0
        return moves

    def _moves(self, tier: Tier, loads: dict[str, float], count_max: int) -> list[Move]:
        """From the most to the least loaded, the bundle that closes most of their gap; then again."""
        moves: list[Move] = []
        moved: set[int] = set()
        while len(moves) < count_max:
            source = max(loads, key=lambda name: (loads[name], name))
            target = min(loads, key=lambda name: (loads[name], name))
            gap = loads[source] - loads[target]
            fitting = [
                bundle
                for bundle, broker in sorted(tier.assigned.items())
                if broker == source
                and bundle not in self._moved_at
                and bundle not in moved
                and bundle in tier.bundles
                and 0 < tier.bundles[bundle].load < gap
            ]
            if gap <= GAP_SMALL or not fitting:
                break
            best = min(fitting, key=lambda bundle: (abs(gap - 2 * tier.bundles[bundle].load), bundle))
            share = tier.bundles[best].load
            if abs(gap - 2 * share) > gap / 2 and len(fitting) == 1:
                break  # it would only change places
            loads[source] -= share
            loads[target] += share
            moved.add(best)
            moves.append(Move(best, source, target, f"load of {source} exceeds that of {target} by {gap:.0%}"))
        return moves
