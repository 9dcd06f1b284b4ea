"""Placement: which hosts should have a copy of a broker.

The file may name the hosts; the copies are then on the first of them that are there, and on the host that the broker
is configured for once it runs elsewhere. Otherwise each place goes to the
candidate with the least cost, and the next place is decided in the light of the ones before it:

    cost = 6 risk + distance + load + role - 2.5 where there is a copy already

    risk      how likely the copy is lost together with the broker: 1 - (1 - f) (1 - c_1) (1 - c_2) ..., where f is the
              share of time that the host is down, and the c are the shares of its failures that come together with
              those of the host that serves, and of the hosts that already got a copy
    distance  r / (r + 100 ms) for a round trip of r: each acknowledgement waits for it. 1 where there is no answer
    load      0.1 for each other broker that runs or has a copy there, at most 0.3: one failure should hit few copies
    role      -0.25 for the host that the broker is configured for, whose disk may still have most of it; 0 for a
              backup; 0.75 for others

So a copy moves only where that gains much, which risk alone does: it costs a snapshot. Where there are as many copies
as there should be, one is moved if that lowers its own cost by as much and the sum of all costs too: a choice stays as
it is until something changes, in whatever order it was made. What is not known costs nothing.
Costs that differ by less than a step are equal. Among equals it is rendezvous hashing, weighted by the score of the
host: brokers of one host get their copies on different hosts, and when a host comes or goes, only the brokers that it
concerns change. A host whose certificate does not name the broker could not prove to be it, and gets no copy.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import log
from typing import NamedTuple

from overlane.core.units import MS, NEVER, Nanos
from overlane.recovery.hosts.host_records import HostRecord

SCORE_MIN = 0.01
RISK_WEIGHT = 6.0
ROUND_TRIP_HALF: Nanos = 100 * MS
"""The round trip that costs half as much as no answer."""
LOAD_EACH, LOAD_MAX = 0.1, 0.3
HOME, BACKUP, OTHER = -0.25, 0.0, 0.75
STAYS = 2.5
STEP = 0.05

Pair = frozenset[str]


@dataclass(frozen=True, slots=True)
class HostStatistics:
    """What is known of the hosts of a domain."""

    down: Mapping[str, float] = field(default_factory=dict)
    """The share of time that a host is down."""
    together: Mapping[Pair, float] = field(default_factory=dict)
    """The share of failures of two hosts that come together."""
    round_trip: Mapping[str, Nanos] = field(default_factory=dict)
    """From the host that serves; NEVER: it did not answer."""
    load: Mapping[str, int] = field(default_factory=dict)
    """How many other brokers a host serves or has copies of, besides the one that it is configured for."""


NOTHING = HostStatistics()


def choose_mirrors(
    broker: str,
    count: int,
    hosts: Mapping[str, HostRecord],
    present: Collection[str],
    excluded: str,
    wanted: str = "",
    *,
    known: HostStatistics = NOTHING,
    named: Sequence[str] = (),
) -> tuple[str, ...]:
    """`present`: hosts with a copy, or that are getting one. `excluded`: where the broker runs. `wanted`: the host that
    an operator wants it to move to. `named`: the hosts that the file allows, best first; all where it names none.
    Sorted by name."""
    named = (broker, *named) if named else ()
    candidates = eligible(broker, hosts, excluded, (*named, wanted) if named else ())
    if named:
        ranked = sorted(candidates, key=lambda name: _order(name, wanted, present, named, known))
        return tuple(sorted(ranked[:count]))
    costs = _Costs(broker, excluded, candidates, known)
    chosen = candidates.keys() & set(present)
    if len(chosen) != min(count, len(candidates)) or (wanted in candidates and wanted not in chosen):
        chosen = costs.fill(count, present, wanted)
    return tuple(sorted(costs.improve(chosen, wanted)))


@dataclass(frozen=True, slots=True)
class _Costs:
    broker: str
    excluded: str
    candidates: Mapping[str, HostRecord]
    known: HostStatistics

    def fill(self, count: int, present: Collection[str], wanted: str) -> set[str]:
        """One place after the other."""
        chosen: set[str] = set()
        while len(chosen) < min(count, len(self.candidates)):
            ranks = {
                name: (name != wanted, _steps(self._cost(name, chosen) - (STAYS if name in present else 0.0)))
                for name in self.candidates.keys() - chosen
            }
            chosen.add(min(ranks, key=lambda name: (ranks[name], self._among_equals(name))))
        return chosen

    def improve(self, chosen: set[str], wanted: str) -> set[str]:
        """Each move lowers the sum of all costs: it ends."""
        while moves := list(self._moves(chosen, wanted)):
            best = min(moves, key=lambda move: (move.gain, self._among_equals(move.to), move.away))
            chosen = chosen - {best.away} | {best.to}
        return chosen

    def _moves(self, chosen: set[str], wanted: str) -> Iterator["_Move"]:
        for away in chosen - {wanted}:
            others = chosen - {away}
            for to in self.candidates.keys() - chosen:
                gain = _steps(self._cost(to, others)) - _steps(self._cost(away, others) - STAYS)
                if gain < 0 and self._sum(others | {to}) < self._sum(chosen):
                    yield _Move(gain, away, to)

    def _sum(self, chosen: Collection[str]) -> int:
        return sum(_steps(self._cost(name, [other for other in chosen if other != name])) for name in chosen)

    def _cost(self, host: str, others: Collection[str]) -> float:
        return _cost(self.broker, host, self.candidates[host], (self.excluded, *sorted(others)), self.known)

    def _among_equals(self, host: str) -> tuple[float, str]:
        return -_weighted(self.broker, host, self.candidates[host]), host


class _Move(NamedTuple):
    gain: int
    """Negative: by how much the cost is lower."""
    away: str
    to: str


def eligible(
    broker: str, hosts: Mapping[str, HostRecord], excluded: str, named: Collection[str] = ()
) -> dict[str, HostRecord]:
    """The hosts that may have a copy."""
    return {
        name: record
        for name, record in hosts.items()
        if name != excluded and (not record.brokers or broker in record.brokers) and (not named or name in named)
    }


def copy_risk(host: str, others: Collection[str], known: HostStatistics) -> float:
    """How likely a copy at this host is not there when those at the others are lost."""
    survives = 1.0 - known.down.get(host, 0.0)
    for other in others:
        survives *= 1.0 - known.together.get(frozenset((host, other)), 0.0)
    return 1.0 - survives


def _cost(broker: str, host: str, record: HostRecord, others: Collection[str], known: HostStatistics) -> float:
    round_trip = known.round_trip.get(host, 0)
    distance = 1.0 if round_trip >= NEVER else round_trip / (round_trip + ROUND_TRIP_HALF)
    load = min(LOAD_MAX, LOAD_EACH * known.load.get(host, 0))
    role = HOME if host == broker else BACKUP if record.role == "backup" else OTHER
    return RISK_WEIGHT * copy_risk(host, others, known) + distance + load + role


def _steps(cost: float) -> int:
    return round(cost / STEP)


def _order(
    host: str, wanted: str, present: Collection[str], named: Sequence[str], known: HostStatistics
) -> tuple[bool, bool, bool, int]:
    """Among hosts that the file names: one that does not answer is the last."""
    is_present, is_silent = host in present, known.round_trip.get(host, 0) >= NEVER
    position = named.index(host) if host in named else len(named)
    return host != wanted, is_silent and not is_present, not is_present, position


def _weighted(broker: str, host: str, record: HostRecord) -> float:
    """The share of brokers that a host wins is that of its weight."""
    digest = sha256(f"{broker}\0{host}".encode()).digest()
    share = (int.from_bytes(digest[:8]) + 1) / (2**64 + 2)
    return -max(SCORE_MIN, record.score) / log(share)
