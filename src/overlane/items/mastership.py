"""Which management agent is the master.

- Whoever finds no master creates `master` and replaces `epoch` in one transaction; the service lets one succeed. The
  candidates stand one after the other, in the order of the election's strategy, STAGGER apart: by default the one with
  the most computing power first. A master stays one while it works, whoever comes: a change of it gains nothing.
- A master that the others cannot reach (`votes`) is deposed by the next in that order. What it writes after that is
  refused by the service: its check of `epoch` fails.
- Its own node of an earlier session is replaced by an agent that has come back before that session has expired.
"""

from collections.abc import Callable, Mapping
from importlib import import_module

from overlane.coordination.contract import Create, Delete, Operation, Replace, Znode
from overlane.core.units import MS, NEVER, Nanos
from overlane.errors import ConfigError, Fault
from overlane.items.records import AgentReport, MasterRecord, Paths, decode, encode

STAGGER: Nanos = 300 * MS

Strategy = Callable[[Mapping[str, AgentReport]], list[str]]
"""Candidates, the best first."""


def most_power_first(reports: Mapping[str, AgentReport]) -> list[str]:
    return sorted(reports, key=lambda name: (-reports[name].power, name))


def by_name(reports: Mapping[str, AgentReport]) -> list[str]:
    return sorted(reports)


STRATEGIES: dict[str, Strategy] = {"power": most_power_first, "name": by_name}


def strategy_named(text: str) -> Strategy:
    """ConfigError for a function that cannot be imported."""
    if (known := STRATEGIES.get(text)) is not None:
        return known
    module, _, function = text.partition(":")
    try:
        found: Strategy = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        allowed = f"{', '.join(STRATEGIES)} or package.module:function"
        raise ConfigError([Fault("placement", 0, "master", f"{text} ({error})", allowed)]) from None
    return found


class Mastership:
    def __init__(self, name: str, paths: Paths, strategy: Strategy = most_power_first) -> None:
        self._name = name
        self._paths = paths
        self.strategy = strategy
        self._vacant_since: Nanos = NEVER
        self._due: Nanos = NEVER

    def next_deadline(self) -> Nanos:
        return self._due

    def due(
        self,
        session: int,
        master: Znode | None,
        epoch: Znode | None,
        holder: str | None,
        reports: Mapping[str, AgentReport],
        failed: frozenset[str],
        now: Nanos,
    ) -> tuple[Operation, ...]:
        """What makes this agent the master, if there should be another one. Both nodes have been read, and `epoch` is
        there."""
        is_vacant = master is None
        is_own_of_before = holder == self._name and master is not None and self._is_of_before(master, session)
        is_lost = holder is not None and holder in failed and holder != self._name
        if epoch is None or self._name not in reports or not (is_vacant or is_own_of_before or is_lost):
            self._vacant_since = self._due = NEVER
            return ()
        self._vacant_since = min(self._vacant_since, now)
        others = {one: report for one, report in reports.items() if one not in failed and (is_vacant or one != holder)}
        order = [one for one in self.strategy(others) if one in others]
        place = 0 if is_own_of_before else order.index(self._name) if self._name in order else len(order)
        self._due = self._vacant_since + place * STAGGER
        if now < self._due:
            return ()
        self._vacant_since = self._due = NEVER
        record = encode(MasterRecord(self._name, session))
        create = Create(self._paths.master, record, is_ephemeral=True)
        fence = Replace(self._paths.epoch, record, epoch.version)
        return (fence, create) if is_vacant else (fence, Delete(self._paths.master), create)

    def _is_of_before(self, master: Znode, session: int) -> bool:
        """Whether its own node is that of an earlier session; or was asked for in that one, and made in this one."""
        return master.owner != session or decode(self._paths.master, master.data, MasterRecord).session != session
