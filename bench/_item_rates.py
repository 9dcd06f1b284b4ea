"""Items with correlated rates, the placement in turn that plans are compared with, and risks predicted and counted."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from overlane.items.plans import DomainPlan, PlannedBroker, PlannedItem, make_plan, problem_of
from overlane.items.policy import Place, Places
from overlane.planning.allocation.placement import overload_risk

Rates = npt.NDArray[np.float64]
FACTORS = 5
KINDS = ("tolls", "sensors", "signs", "cameras")
RISK_MAX = 0.02


def drawn_plan(brokers: int, items: int, seed: int, margin: float = 1.8) -> DomainPlan:
    """Items whose rates share factors, on brokers whose capacity is `margin` times their share of the mean."""
    luck = np.random.default_rng(seed)
    mean = luck.lognormal(4.0, 0.5, items)
    loadings = luck.uniform(0, 0.25, (items, FACTORS)) * (luck.random((items, FACTORS)) < 0.4) * mean[:, None]
    covariance = loadings @ loadings.T + np.diag((0.1 * mean) ** 2)
    capacity = margin * mean.sum() / brokers
    return make_plan(
        [PlannedItem(f"item-{at}", float(one), bool(luck.random() < 0.1)) for at, one in enumerate(mean)],
        covariance.tolist(),
        [PlannedBroker(f"b{number:02}", float(capacity)) for number in range(brokers)],
        RISK_MAX,
        version=1,
    )


def station_plan(brokers: int, stations: int, seed: int, margin: float, capacity: float) -> DomainPlan:
    """Stations along a highway with one item of each kind. Items of one kind rise and fall together, and in part those
    of one station. Capacities are `margin` times the share of the mean, copies of critical items included."""
    luck = np.random.default_rng(seed)
    names = [f"{kind}-{station}" for station in range(1, stations + 1) for kind in KINDS]
    critical = [name in ("tolls-1", "tolls-2") for name in names]
    mean = luck.lognormal(0.0, 0.15, len(names))
    mean *= capacity * brokers / margin / (mean * (1 + np.array(critical))).sum()
    kind = np.tile(np.eye(len(KINDS)), (stations, 1)) * 0.35 * mean[:, None]
    station = np.repeat(np.eye(stations), len(KINDS), axis=0) * 0.1 * mean[:, None]
    covariance = kind @ kind.T + station @ station.T + np.diag((0.1 * mean) ** 2)
    return make_plan(
        [PlannedItem(*one) for one in zip(names, mean.tolist(), critical, strict=True)],
        covariance.tolist(),
        [PlannedBroker(f"west-{number}", capacity) for number in range(1, brokers + 1)],
        RISK_MAX,
        version=1,
    )


def placed_in_turn(plan: DomainPlan) -> Places:
    """The round robin of `overlane plan allocate`, with mirrors: each item goes to the broker with the largest reserve
    (C - V) / C, its mirror to the next. V is the mean placed there so far, copies of critical items included."""
    capacity = np.array([broker.capacity for broker in plan.brokers])
    mean, places = np.zeros(len(capacity)), {}
    for item in plan.items:
        primary, mirror = np.argsort(-(capacity - mean) / capacity, kind="stable")[:2].tolist()
        mean[[primary, mirror] if item.critical else [primary]] += item.mean
        places[item.name] = Place(plan.brokers[primary].name, plan.brokers[mirror].name)
    return places


@dataclass(frozen=True)
class Carried:
    """Which items load which broker: critical ones both of theirs."""

    plan: DomainPlan
    places: Places

    def weights(self, broker: str) -> Rates:
        return np.array([self._is_carried(item.name, item.critical, broker) for item in self.plan.items], dtype=float)

    def _is_carried(self, item: str, is_critical: bool, broker: str) -> bool:
        place = self.places[item]
        return broker == place.primary or (is_critical and broker == place.mirror)

    def predicted(self) -> dict[str, float]:
        """Pr(V > C) of each broker by the covariance."""
        problem, found = problem_of(self.plan), {}
        for broker in self.plan.brokers:
            weights = self.weights(broker.name)
            mean, variance = weights @ problem.mean, weights @ problem.covariance @ weights
            found[broker.name] = float(overload_risk(np.array([mean]), np.array([variance]), broker.capacity)[0])  # type: ignore[arg-type]
        return found

    def counted(self, rates: Rates) -> dict[str, float]:
        """How often the rate of each broker exceeds its capacity. `rates`: samples of all items."""
        return {
            broker.name: float((rates @ self.weights(broker.name) > broker.capacity).mean())
            for broker in self.plan.brokers
        }


def drawn_rates(plan: DomainPlan, samples: int, seed: int) -> Rates:
    problem = problem_of(plan)
    luck = np.random.default_rng(seed)
    return luck.multivariate_normal(problem.mean, problem.covariance, size=samples, method="cholesky")


def differences(carried: Carried, predicted: dict[str, float], rates: Rates) -> list[tuple[float, float]]:
    """Of each broker, how far the counted risk is from the predicted one: in standard errors of counting, and as is."""
    counted, samples = carried.counted(rates), len(rates)
    found = []
    for broker, risk in predicted.items():
        deviation = max((risk * (1 - risk) / samples) ** 0.5, 1 / samples)
        found.append((abs(counted[broker] - risk) / deviation, abs(counted[broker] - risk)))
    return found
