"""Problem files of the allocate, mirror and casebase commands, and tables of their solutions."""

from collections.abc import Callable
from time import monotonic

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from overlane.planning.allocation import BrokerCapacity, Item, Problem
from overlane.planning.problem import BadProblem, NoSolution

NAMES_SHOWN_MAX = 12


class ItemGiven(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    mean: float
    topics: int = 1
    reward: float | None = None
    penalty: float | None = None
    critical: bool = False


class BrokerGiven(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    capacity: float
    topics_max: int | None = None


class AllocateProblem(msgspec.Struct, forbid_unknown_fields=True):
    items: list[ItemGiven]
    covariance: list[list[float]]
    brokers: list[BrokerGiven]
    risk_max: float = 0.02
    time_limit_s: float = 10.0


class MirrorProblem(AllocateProblem, forbid_unknown_fields=True):
    primary: dict[str, str] | None = None


class CasebaseProblem(MirrorProblem, forbid_unknown_fields=True):
    low_load: float | None = None


def checked(given: AllocateProblem) -> Problem:
    """The problem, or BadProblem naming the field."""
    if not given.time_limit_s > 0:
        raise BadProblem("time_limit_s", f"{given.time_limit_s:g}", "a number of seconds above 0")
    items = [Item(i.name, i.mean, i.topics, i.reward, i.penalty, i.critical) for i in given.items]
    brokers = [BrokerCapacity(b.name, b.capacity, b.topics_max) for b in given.brokers]
    return Problem.of(items, given.covariance, brokers, given.risk_max)


def stopwatch(time_limit_s: float) -> Callable[[], float]:
    """A function that returns the share of the time limit spent since now."""
    start_s = monotonic()
    return lambda: (monotonic() - start_s) / time_limit_s


def names(of: list[str]) -> str:
    """A list of names that fits a cell."""
    more = f", and {len(of) - NAMES_SHOWN_MAX} more" if len(of) > NAMES_SHOWN_MAX else ""
    return escape(", ".join(of[:NAMES_SHOWN_MAX]) + more) or "-"


def held_by(primary: dict[str, str], broker: str) -> list[str]:
    return [item for item, place in primary.items() if place == broker]


def show_nearest(refused: NoSolution, console: Console) -> None:
    """Print the nearest feasible allocation."""
    primary, risk = refused.nearest.get("primary"), refused.nearest.get("risk")
    if not isinstance(primary, dict) or not isinstance(risk, dict):
        return
    table = Table("broker", "items", "risk", title="Nearest allocation")
    for broker, probability in risk.items():
        table.add_row(escape(broker), names(held_by(primary, broker)), f"{probability:.4g}")
    console.print(table)
