"""Scoring: which candidate is best to continue a broker (landmark-based recovery, equations 1 to 5).

    U_C  = exp(min(C_e (1 - C_u) - C_n, 0))             processor: equipped, used share, needed      (1)
    U_M  = exp(min(M_e (1 - M_u) - M_n, 0))             memory                                       (2)
    U_BA = exp(min(BA_e - BA_n, 0))                     battery                                      (3)
    U_BW = sum over neighbours of exp(min(BW_i - BW_n, 0)) / m        bandwidth to m neighbours      (4)
    U_T  = W_C U_C + W_M U_M + W_BW U_BW + W_BA U_BA    the weights sum to 1                         (5)

The paper writes `{[x, 0]}` without naming the operation. It is the minimum: a utility is then 1 where there is as much
as needed, and falls towards 0 with what lacks; with the maximum it would have no bound. Units are chosen so that a
lack of 1 is grave: GHz, GiB, hours, Mbit/s. A criterion that was not measured (a host without a battery) has utility 1.

Weights are given as in the paper's configuration, in any scale: 1, 1, 50 and 60 give the processor 1/112. The number of
an external program is one more criterion, with a weight of its own; it is taken as a utility from 0 to 1.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import exp, isfinite


@dataclass(frozen=True, slots=True)
class Weights:
    cpu: float = 1.0
    memory: float = 1.0
    bandwidth: float = 1.0
    battery: float = 1.0
    command: float = 0.0
    """Of the external program."""

    def __post_init__(self) -> None:
        weights = (self.cpu, self.memory, self.bandwidth, self.battery, self.command)
        if not all(isfinite(weight) and weight >= 0 for weight in weights) or not 0 < sum(weights) < float("inf"):
            raise ValueError("weights are numbers of at least 0, and one of them is greater")


@dataclass(frozen=True, slots=True)
class Needs:
    """What a broker needs; its lack lowers the score."""

    cpu_ghz: float = 0.0
    memory_gib: float = 0.0
    bandwidth_mbps: float = 0.0
    battery_hours: float = 0.0


@dataclass(frozen=True, slots=True)
class Resources:
    """What a candidate measures of itself. None: not measured, or there is no such thing."""

    cpu_ghz: float | None = None
    """Of all processors."""
    cpu_used: float = 0.0
    """From 0 to 1."""
    memory_gib: float | None = None
    memory_used: float = 0.0
    battery_hours: float | None = None
    bandwidth_mbps: tuple[float, ...] = ()
    """To each neighbour of the broker that is to be continued."""
    command: float | None = None
    """The number that an external program has printed."""


@dataclass(frozen=True, slots=True)
class Score:
    total: float
    cpu: float
    memory: float
    bandwidth: float
    battery: float
    command: float


def score(resources: Resources, needs: Needs, weights: Weights) -> Score:
    """The total is between 0 and 1."""
    cpu = _utility(_free(resources.cpu_ghz, resources.cpu_used), needs.cpu_ghz)
    memory = _utility(_free(resources.memory_gib, resources.memory_used), needs.memory_gib)
    battery = _utility(resources.battery_hours, needs.battery_hours)
    links = [_utility(mbps, needs.bandwidth_mbps) for mbps in resources.bandwidth_mbps]
    bandwidth = sum(links) / len(links) if links else 1.0
    command = 1.0 if resources.command is None else _share(resources.command)
    total = (
        weights.cpu * cpu
        + weights.memory * memory
        + weights.bandwidth * bandwidth
        + weights.battery * battery
        + weights.command * command
    ) / (weights.cpu + weights.memory + weights.bandwidth + weights.battery + weights.command)
    return Score(total, cpu, memory, bandwidth, battery, command)


def ranked(
    scores: Mapping[str, float], in_sync: Iterable[str], between_equals: Callable[[str], bytes] = str.encode
) -> list[str]:
    """Those that may continue the broker, best first; `between_equals` decides where scores are equal. One without a
    score is the last: its host is not there, as far as is known."""
    return sorted(set(in_sync), key=lambda name: (-scores.get(name, -1.0), between_equals(name)))


def parse_command_output(text: str) -> float | None:
    """The number that an external program has printed as its last word; None where it has printed none."""
    words = text.split()
    try:
        number = float(words[-1]) if words else None
    except ValueError:
        return None
    return number if number is not None and isfinite(number) else None


def _free(equipped: float | None, used: float) -> float | None:
    return None if equipped is None else equipped * (1 - _share(used))


def _utility(available: float | None, needed: float) -> float:
    if available is None:
        return 1.0
    return exp(min(available - needed, 0.0)) if isfinite(available) else 0.0


def _share(number: float) -> float:
    return min(1.0, max(0.0, number)) if isfinite(number) else 0.0
