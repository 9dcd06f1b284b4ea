"""Succession: in which order the mirrors in sync try to continue a broker that is lost.

The best-scored candidate (`scoring`) claims at once, each of the others a turn later than the one before it; whoever is
first wins the compare-and-set. So the best one continues the broker unless it has failed too, and then the next one
does. That all claim at once is safe, and so is any order that hosts disagree about.

Candidates with the same score take turns by a hash of broker and host: brokers that are lost together are continued at
different hosts.
"""

from collections.abc import Mapping
from hashlib import sha256

from overlane.core.units import MS, Nanos
from overlane.recovery.hosts.host_records import HostRecord
from overlane.recovery.hosts.scoring import ranked
from overlane.recovery.replica_set import ReplicaSet

TURN: Nanos = 150 * MS
"""In which the better one asks, and others see the outcome."""


def successors(broker: str, value: ReplicaSet, hosts: Mapping[str, HostRecord]) -> list[str]:
    """The hosts of mirrors in sync, best first. `hosts`: those that are there, with their scores."""
    scores = {name: record.score for name, record in hosts.items()}
    return ranked(scores, [copy.host for copy in value.mirrors], lambda host: _spread(broker, host))


def claim_delay(broker: str, host: str, value: ReplicaSet, hosts: Mapping[str, HostRecord]) -> Nanos:
    """How long this host leaves the broker to better ones."""
    order = successors(broker, value, hosts)
    return order.index(host) * TURN if host in order else 0


def _spread(broker: str, host: str) -> bytes:
    return sha256(f"{broker}\0{host}".encode()).digest()
