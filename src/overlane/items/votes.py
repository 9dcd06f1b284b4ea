"""Which brokers of a domain have failed, by what the others report of them.

- A broker that two others cannot reach has failed; where fewer others are there, one is enough. So the loss of a single
  link between two brokers is not the failure of either.
- One whose registration has gone needs one such vote; without any, it has failed when it has been gone for GONE. A lost
  session of a broker whose links work is nothing.
- Who has failed has no vote: a broker that is cut off from all others votes against all of them. The one with the most
  votes goes first, and its votes with it.
- A broker counts as back when nobody has had anything against it for RETURN, twice as long with every relapse: a broker
  that comes and goes does not move its items to and fro.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from overlane.core.units import NEVER, SECOND, Nanos

VOTES = 2
GONE: Nanos = 10 * SECOND
RETURN: Nanos = 5 * SECOND
RETURN_MAX: Nanos = 60 * SECOND
FORGIVEN: Nanos = 300 * SECOND
"""After so long without a relapse, earlier ones are forgotten."""


@dataclass(slots=True)
class _Record:
    gone_since: Nanos = NEVER
    is_failed: bool = False
    good_since: Nanos = NEVER
    relapses: int = 0
    back_at: Nanos = 0


def accused(votes: Mapping[str, frozenset[str]], known: frozenset[str], me: str) -> frozenset[str]:
    """Whom the others cannot reach. `votes`: by registered broker, whom it cannot reach. `known`: those that ought to
    be there. `me` decides, and is there."""
    present = set(votes)
    failed: set[str] = set()
    while True:
        voters = present - failed
        counts = {
            one: sum(one in votes[voter] for voter in voters if voter != one)
            for one in sorted(known - failed)
            if one != me or len(voters) > 2
        }
        guilty = []
        for one, count in counts.items():
            others = len(known - failed - {one})  # one whose session has just expired is there all the same
            needed = min(VOTES if one in present else 1, others)
            if count and count >= needed:
                guilty.append((count, one not in present, one))
        if not guilty:
            return frozenset(failed)
        failed.add(max(guilty)[2])


class FailureVotes:
    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}

    def failed(
        self, votes: Mapping[str, frozenset[str]], known: frozenset[str], me: str, now: Nanos
    ) -> tuple[frozenset[str], Nanos]:
        """Who has failed, and when that may change by the passing of time alone. `known`: all brokers that ought to be
        there."""
        gone = frozenset(one for one in known if self._note_presence(one, one in votes, now))
        voted = accused(votes, known - gone, me) | gone
        due = NEVER
        for one in known:
            record = self._records[one]
            if one in voted:
                self._fail(record, now)
            elif one not in votes:
                record.good_since = NEVER  # neither there nor accused: not back, and not lost yet
                due = min(due, record.gone_since + GONE) if not record.is_failed else due
            elif record.is_failed:
                record.good_since = min(record.good_since, now)
                back_at = record.good_since + min(RETURN << min(record.relapses, 8), RETURN_MAX)
                if now >= back_at:
                    record.is_failed, record.back_at = False, now
                else:
                    due = min(due, back_at)
        return frozenset(one for one in known if self._records[one].is_failed), due

    def _note_presence(self, one: str, is_registered: bool, now: Nanos) -> bool:
        """Note since when it is not registered; whether that is long enough to count as gone."""
        record = self._records.setdefault(one, _Record())
        record.gone_since = NEVER if is_registered else min(record.gone_since, now)
        return record.gone_since < NEVER and now >= record.gone_since + GONE

    @staticmethod
    def _fail(record: _Record, now: Nanos) -> None:
        record.good_since = NEVER
        if record.is_failed:
            return
        record.is_failed = True
        is_relapse = bool(record.back_at) and now < record.back_at + FORGIVEN
        record.relapses = record.relapses + 1 if is_relapse else 0
