"""What is known of the hosts of a domain when hosts for copies are chosen (`placement`).

    down        by the plan in use; of hosts that it does not name, the share of time that this process has seen them
                gone since it saw them first
    together    by the file (groups of hosts that share a rack or a power supply) and by the plan; the greater counts
    load        by what the primaries of the domain have published
    round trip  measured, by whoever uses this

A share that was seen needs some time of watching before it says anything: it counts as if the host had been there for
`WATCHED_BEFORE` before it was seen. It is rounded to two digits after the point.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from overlane.core.units import SECOND, Nanos
from overlane.recovery.hosts.host_records import MirrorsRecord
from overlane.recovery.hosts.placement import Pair

BY_FILE = 0.9
"""How likely hosts that the file names as one group fail together."""
WATCHED_BEFORE: Nanos = 24 * 3_600 * SECOND
HOSTS_MAX = 1_000


@dataclass(slots=True)
class _Seen:
    since: Nanos
    gone_at: Nanos | None = None
    gone: Nanos = 0


class Presence:
    """Which hosts were there, and for how long each was gone."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def noted(self, present: Collection[str], now: Nanos) -> None:
        for name in present:
            one = self._seen.get(name)
            if one is None:
                if len(self._seen) < HOSTS_MAX:
                    self._seen[name] = _Seen(now)
            elif one.gone_at is not None:
                one.gone += now - one.gone_at
                one.gone_at = None
        for name, one in self._seen.items():
            if one.gone_at is None and name not in present:
                one.gone_at = now

    def down(self, now: Nanos) -> dict[str, float]:
        """The share of time that each host was gone."""
        return {
            name: round(_gone(one, now) / (now - one.since + WATCHED_BEFORE), 2) for name, one in self._seen.items()
        }


def _gone(one: _Seen, now: Nanos) -> Nanos:
    return one.gone + (0 if one.gone_at is None else now - one.gone_at)


def together_of(groups: Iterable[Collection[str]], planned: Mapping[Pair, float]) -> dict[Pair, float]:
    """`groups`: of the file."""
    found = dict(planned)
    for group in groups:
        for pair in map(frozenset, combinations(group, 2)):
            found[pair] = max(BY_FILE, found.get(pair, 0.0))
    return found


def load_of(broker: str, mirrors: Mapping[str, MirrorsRecord]) -> Counter[str]:
    """Without what is there of this broker."""
    others = [(name, record) for name, record in mirrors.items() if name != broker]
    copies = Counter(host for _, record in others for host in record.hosts)
    served = Counter(record.primary for name, record in others if record.primary != name)
    return copies + served
