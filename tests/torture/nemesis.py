"""Which faults happen when: drawn from a seed before the run, so that the seed repeats them."""

from dataclasses import dataclass
from random import Random

DAY_S = 86_400.0
YEAR_S = 365.25 * DAY_S
JUMPS_S = (-1.0, 3.0, -30.0, 3_600.0, -3_600.0, DAY_S, -DAY_S, YEAR_S, -YEAR_S, 81 * YEAR_S)
"""The last one is beyond what 32 bits of seconds hold."""

QUIET_S = 2.0
"""At the start."""
EVERY_S = 2.2
"""A fault begins so often, on average."""


@dataclass(frozen=True)
class Fault:
    kind: str
    target: str
    """A broker, a link such as "a-b", or a reader."""
    at_s: float
    for_s: float
    amount: float = 0.0
    """Of a clock's jump, seconds; of a loss, the share; of a slow link, milliseconds."""

    def __str__(self) -> str:
        amount = f" {self.amount:g}" if self.amount else ""
        return f"{self.at_s:6.2f} s  {self.kind} {self.target}{amount} for {self.for_s:.2f} s"


WEIGHTS = {
    "kill": 6,
    "pause": 4,
    "cut": 4,
    "loss": 3,
    "slow": 2,
    "full": 3,
    "write-errors": 3,
    "sync-errors": 1,
    "clock": 4,
    "away": 3,
}
LASTING_S = {
    "kill": (0.05, 3.0),
    "pause": (0.2, 6.0),
    "cut": (0.5, 8.0),
    "loss": (2.0, 8.0),
    "slow": (2.0, 8.0),
    "full": (1.0, 6.0),
    "write-errors": (0.5, 4.0),
    "sync-errors": (0.5, 3.0),
    "clock": (1.0, 20.0),
    "away": (0.5, 6.0),
}
OF_BROKERS = ("kill", "pause", "full", "write-errors", "sync-errors", "clock")
OF_LINKS = ("cut", "loss", "slow")


def plan(
    seed: int, seconds: float, brokers: list[str], links: list[str], readers: list[str], kinds: tuple[str, ...]
) -> list[Fault]:
    """In the order of their beginnings; all end before `seconds`. One target has one fault of a kind at a time."""
    luck = Random(f"nemesis {seed}")
    weights = [WEIGHTS[kind] for kind in kinds]
    busy: dict[tuple[str, str], float] = {}
    found: list[Fault] = []
    at_s = min(QUIET_S, seconds / 10)
    while (at_s := at_s + luck.expovariate(1 / EVERY_S)) < seconds:
        kind = luck.choices(kinds, weights)[0]
        target = luck.choice(brokers if kind in OF_BROKERS else links if kind in OF_LINKS else readers)
        for_s = min(luck.uniform(*LASTING_S[kind]), seconds - at_s)
        amount = {"clock": luck.choice(JUMPS_S), "loss": luck.uniform(0.05, 0.4), "slow": luck.uniform(50, 400)}
        what = _exclusive(kind)
        if busy.get((what, target), 0.0) <= at_s:
            busy[what, target] = at_s + for_s
            found.append(Fault(kind, target, at_s, for_s, amount.get(kind, 0.0)))
    return found


def _exclusive(kind: str) -> str:
    """Faults of these do not overlap at one target."""
    if kind in ("kill", "pause"):
        return "process"
    if kind in ("full", "write-errors", "sync-errors"):
        return "disk"
    return "link" if kind in OF_LINKS else kind
