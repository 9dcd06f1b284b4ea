"""Gaps: how much of the best-effort flows that end here is missing.

The parcels of a flow are numbered without gaps, and no best-effort parcel is sent again by its source. So of all
numbers from the first that arrived to the newest, those that never arrived are lost, or still in flight on another
path. A loss at the very end of a flow is detected when its next parcel arrives.
"""

from dataclasses import dataclass

from overlane.core.flows.inflow import InflowName

FLOWS_MAX = 4_096


@dataclass(slots=True)
class _Seen:
    topic: str
    """Of a message that came last: it tells whose flow this is."""
    first: int
    newest: int
    came: int


@dataclass(frozen=True, slots=True)
class SequenceGap:
    """`missing` parcels of flows from one origin whose messages are of the class of `topic`."""

    origin: int
    topic: str
    missing: int


class Gaps:
    def __init__(self) -> None:
        self._seen: dict[InflowName, _Seen] = {}

    def knows(self, name: InflowName) -> bool:
        return name in self._seen

    def came(self, name: InflowName, sequence: int, topic: str) -> None:
        """`topic`: of one of its messages; empty if one of the flow is known."""
        seen = self._seen.get(name)
        if seen is None:
            if len(self._seen) >= FLOWS_MAX:
                del self._seen[next(iter(self._seen))]
            self._seen[name] = _Seen(topic, sequence, sequence, 1)
            return
        if sequence < seen.first:
            return  # it was in flight when the first one arrived; had it been lost, nobody would know
        seen.came += 1
        seen.topic = topic or seen.topic
        if sequence > seen.newest:
            seen.newest = sequence

    def all(self) -> list[SequenceGap]:
        """Of every flow, those without a gap included."""
        return [
            SequenceGap(name[0], seen.topic, max(0, seen.newest - seen.first + 1 - seen.came))
            for name, seen in self._seen.items()
        ]
