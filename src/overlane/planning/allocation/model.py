"""The allocation problem: items with uncertain rates, brokers with capacities, and the utility of a broker's items.

An item is a group of topics that is placed as one. Its rate in the peak period is normal, with a mean and a covariance
with every other item, so the rate V of the items on one broker is normal too. A broker with capacity C has the utility

    U = R - P * Pr(V > C)

where R and P are the rewards and penalties of its items, summed. An allocation places every item on one broker; it is
feasible if Pr(V > C) of every broker is strictly below `risk_max` and no broker has more topics than its limit. Rewards
do not depend on the placement, so maximising utility is minimising the loss: the sum of P * Pr(V > C).

Everything is validated when a problem is created; solvers need not check a `Problem` again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cholesky, eigvalsh

from overlane.planning.problem import BadProblem

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]

# Covariances come from samples and pass through files: asymmetry and negative eigenvalues below this share of the
# largest entry are rounding, above it they are mistakes.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Item:
    """A bundle of topics; reward and penalty are its mean rate when not given."""

    name: str
    mean: float
    topics: int = 1
    reward: float | None = None
    penalty: float | None = None
    critical: bool = False


@dataclass(frozen=True, slots=True)
class BrokerCapacity:
    """A broker that carries up to `capacity` messages per unit of time and, when set, up to `topics_max` topics."""

    name: str
    capacity: float
    topics_max: int | None = None


@dataclass(frozen=True, eq=False)
class Problem:
    """Items to place on brokers, checked: arrays are in the order of `items` and `brokers`."""

    items: tuple[Item, ...]
    covariance: FloatArray
    brokers: tuple[BrokerCapacity, ...]
    risk_max: float = 0.02

    @staticmethod
    def of(
        items: Sequence[Item],
        covariance: Sequence[Sequence[float]] | FloatArray,
        brokers: Sequence[BrokerCapacity],
        risk_max: float = 0.02,
    ) -> "Problem":
        """A checked problem, or BadProblem naming the field that is wrong."""
        _check_items(items)
        _check_brokers(brokers)
        _require(0 < risk_max <= 1, "risk_max", risk_max, "above 0 and at most 1")
        return Problem(tuple(items), _checked_covariance(covariance, len(items)), tuple(brokers), float(risk_max))

    @property
    def mean(self) -> FloatArray:
        return np.array([item.mean for item in self.items], dtype=np.float64)

    @property
    def topics(self) -> FloatArray:
        return np.array([item.topics for item in self.items], dtype=np.float64)

    @property
    def reward(self) -> FloatArray:
        return np.array([item.mean if item.reward is None else item.reward for item in self.items], dtype=np.float64)

    @property
    def penalty(self) -> FloatArray:
        return np.array([item.mean if item.penalty is None else item.penalty for item in self.items], dtype=np.float64)

    @property
    def critical(self) -> npt.NDArray[np.bool_]:
        return np.array([item.critical for item in self.items], dtype=np.bool_)

    @property
    def capacity(self) -> FloatArray:
        return np.array([broker.capacity for broker in self.brokers], dtype=np.float64)

    @property
    def topics_max(self) -> FloatArray:
        return np.array([np.inf if b.topics_max is None else b.topics_max for b in self.brokers], dtype=np.float64)

    def named(self, places: IntArray) -> dict[str, str]:
        """{item: broker} for places given as broker positions."""
        return {item.name: self.brokers[place].name for item, place in zip(self.items, places.tolist(), strict=True)}

    def by_broker(self, values: FloatArray) -> dict[str, float]:
        """{broker: value} for values in the order of the brokers."""
        return {broker.name: value for broker, value in zip(self.brokers, values.tolist(), strict=True)}

    def places(self, named: dict[str, str], field_name: str) -> IntArray:
        """Broker positions for {item: broker}; every item must be there, and nothing else."""
        position = {broker.name: index for index, broker in enumerate(self.brokers)}
        unknown = sorted(set(named) - {item.name for item in self.items})
        _require(not unknown, field_name, ", ".join(unknown), "only items of the problem")
        for item in self.items:
            _require(item.name in named, f"{field_name}.{item.name}", "nothing", "a broker for every item")
            broker = named[item.name]
            _require(broker in position, f"{field_name}.{item.name}", repr(broker), f"one of {', '.join(position)}")
        return np.array([position[named[item.name]] for item in self.items], dtype=np.int64)


def _require(holds: bool, field_name: str, found: object, allowed: str) -> None:
    if not holds:
        raise BadProblem(field_name, str(found), allowed)


def _check_names(names: list[str], field_name: str) -> None:
    _require(len(names) > 0, field_name, "none", "at least one")
    seen: set[str] = set()
    for index, name in enumerate(names):
        _require(name != "", f"{field_name}[{index}].name", "an empty name", "a name")
        _require(name not in seen, f"{field_name}[{index}].name", f"{name!r} again", "a name used once")
        seen.add(name)


def _check_items(items: Sequence[Item]) -> None:
    _check_names([item.name for item in items], "items")
    for index, item in enumerate(items):
        where = f"items[{index}]"
        _require(np.isfinite(item.mean) and item.mean >= 0, f"{where}.mean", item.mean, "a rate of at least 0")
        _require(item.topics >= 1, f"{where}.topics", item.topics, "at least 1")
        reward = 0.0 if item.reward is None else item.reward
        _require(bool(np.isfinite(reward)), f"{where}.reward", reward, "a finite number")
        penalty = 0.0 if item.penalty is None else item.penalty
        _require(np.isfinite(penalty) and penalty >= 0, f"{where}.penalty", penalty, "at least 0")


def _check_brokers(brokers: Sequence[BrokerCapacity]) -> None:
    _check_names([broker.name for broker in brokers], "brokers")
    for index, broker in enumerate(brokers):
        where = f"brokers[{index}]"
        _require(np.isfinite(broker.capacity) and broker.capacity > 0, f"{where}.capacity", broker.capacity, "above 0")
        topics_max = broker.topics_max
        _require(topics_max is None or topics_max >= 0, f"{where}.topics_max", topics_max, "null or at least 0")


def _checked_covariance(rows: Sequence[Sequence[float]] | FloatArray, size: int) -> FloatArray:
    _require(len(rows) == size, "covariance", f"{len(rows)} rows", f"{size} rows, one for each item")
    if not isinstance(rows, np.ndarray):
        for index, row in enumerate(rows):
            _require(len(row) == size, f"covariance[{index}]", f"{len(row)} numbers", f"{size}, one for each item")
    matrix = np.array(rows, dtype=np.float64)
    _require(matrix.shape == (size, size), "covariance", f"shape {matrix.shape}", f"{size} x {size}")
    _require(bool(np.isfinite(matrix).all()), "covariance", "a number that is not finite", "finite numbers")
    rounding = ROUNDING * float(np.abs(matrix).max())
    skewed = np.argwhere(np.abs(matrix - matrix.T) > rounding)
    if len(skewed) > 0:
        row, column = skewed[0].tolist()
        found = f"{matrix[row, column]:g}, but [{column}][{row}] is {matrix[column, row]:g}"
        raise BadProblem(f"covariance[{row}][{column}]", found, "a symmetric matrix")
    matrix = (matrix + matrix.T) / 2
    _check_positive(matrix, rounding)
    return matrix


def _check_positive(matrix: FloatArray, rounding: float) -> None:
    """Refuse a matrix under which some mixture of items would have a negative variance."""
    negative = np.flatnonzero(np.diag(matrix) < 0)
    if len(negative) > 0:
        index = int(negative[0])
        raise BadProblem(f"covariance[{index}][{index}]", f"{matrix[index, index]:g}", "a variance of at least 0")
    try:
        # Positive definite once lifted by the rounding: ten times faster than the eigenvalues it stands for.
        cholesky(matrix + rounding * np.eye(len(matrix)), lower=True, check_finite=False)
    except LinAlgError:
        least = float(eigvalsh(matrix, subset_by_index=(0, 0), check_finite=False)[0])
        if least < -rounding * 2:
            found = f"an eigenvalue of {least:g}"
            raise BadProblem("covariance", found, "a positive semidefinite matrix") from None
