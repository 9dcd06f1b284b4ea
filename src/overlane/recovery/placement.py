"""Placement: which hosts should have a copy of a broker.

Hosts that have one keep it as long as they are there: a copy costs a snapshot. Free places go to the host that the
broker is configured for, whose disk may still have most of it, then to backups, then to others. Among equals it is
rendezvous hashing, weighted by the score of the host: brokers of one host get their copies on different hosts, and when
a host comes or goes, only the brokers that it concerns change. A host whose certificate does not name the broker could
not prove to be it, and gets no copy.
"""

from collections.abc import Collection, Mapping
from hashlib import sha256
from math import log

from overlane.recovery.host_records import HostRecord

SCORE_MIN = 0.01


def choose_mirrors(
    broker: str, count: int, hosts: Mapping[str, HostRecord], present: Collection[str], excluded: str, wanted: str = ""
) -> tuple[str, ...]:
    """`present`: hosts with a copy, or that are getting one. `excluded`: where the broker runs. `wanted`: the host that
    an operator wants it to move to. Sorted by name."""
    candidates = {
        name: record
        for name, record in hosts.items()
        if name != excluded and (not record.brokers or broker in record.brokers)
    }
    ranked = sorted(candidates, key=lambda name: (name != wanted, name not in present, _rank(broker, name, candidates)))
    return tuple(sorted(ranked[:count]))


def _rank(broker: str, host: str, hosts: Mapping[str, HostRecord]) -> tuple[int, float, str]:
    """Less is better."""
    record = hosts[host]
    preferred = 0 if host == broker else 1 if record.role == "backup" else 2
    return preferred, -_weighted(broker, host, max(SCORE_MIN, record.score)), host


def _weighted(broker: str, host: str, weight: float) -> float:
    """The share of brokers that a host wins is that of its weight."""
    digest = sha256(f"{broker}\0{host}".encode()).digest()
    share = (int.from_bytes(digest[:8]) + 1) / (2**64 + 2)
    return -weight / log(share)
