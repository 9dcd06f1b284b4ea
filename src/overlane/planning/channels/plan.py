"""From advertisements to a mapping with a bound: merge, search, prove or bound, expand.

A demand with as many channels as kinds costs nothing. Every other one is searched channel by channel. If it is small
enough for the tables of a spine, it is refined along the spine and then proved; if the proof does not end within its
limit, or cannot be attempted, the bound is the better of its result so far and the spectral one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from overlane.planning.channels.clustering import clustering
from overlane.planning.channels.demand import Demand, Layout, fold, layout_cost_bps, layout_for_free, unfold
from overlane.planning.channels.exact import prove
from overlane.planning.channels.greedy import greedy
from overlane.planning.channels.model import Advertisement, Channel, Cost, check, cost_of
from overlane.planning.channels.refine import refine
from overlane.planning.channels.search import search
from overlane.planning.channels.spectral import spectral_bound_bps
from overlane.planning.channels.spine import Spine, fits

ROUNDS = 240
ROUNDS_BEFORE_SPINE = 20
REFINE_CELLS_MAX = 200_000_000
PROOF_CELLS_MAX = 600_000_000
PROVEN_SHARE = 1e-9  # a bound this close to the cost, by rounding, meets it


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """A mapping, its cost, and how far below it any other could be."""

    channels: tuple[Channel, ...]
    cost: Cost
    bound_bps: float
    status: Literal["optimal", "feasible"]
    all_unicast_bps: float  # what no channel at all costs
    greedy_bps: float  # what the IndiQoS strategy costs
    clustering_bps: float  # what k-means clustering costs


def never() -> bool:
    """No limit but the solvers' own."""
    return False


def plan_channels(
    advertisements: Sequence[Advertisement],
    channels: int,
    unicast_weight: float = 1.0,
    stop: Callable[[], bool] = never,
) -> ChannelPlan:
    """The least waste and unicast that could be found, with the proof or the bound that goes with it."""
    check(advertisements, channels, unicast_weight)
    demand = fold(advertisements, channels, unicast_weight)
    by_greedy, by_clustering = greedy(demand), clustering(demand)
    layout, bound_bps = _solve(demand, [by_greedy, by_clustering], stop)

    mapping = unfold(demand, layout)
    cost = cost_of(advertisements, mapping, unicast_weight)
    proven = bound_bps >= cost.total_bps - PROVEN_SHARE * demand.all_unicast_bps
    return ChannelPlan(
        channels=mapping,
        cost=cost,
        bound_bps=cost.total_bps if proven else bound_bps,
        status="optimal" if proven else "feasible",
        all_unicast_bps=demand.all_unicast_bps,
        greedy_bps=layout_cost_bps(demand, by_greedy),
        clustering_bps=layout_cost_bps(demand, by_clustering),
    )


def _solve(demand: Demand, starts: list[Layout], stop: Callable[[], bool]) -> tuple[Layout, float]:
    if demand.channels == demand.channels_for_free:
        return layout_for_free(demand), 0.0
    if demand.channels == 0:
        return starts[0], demand.all_unicast_bps
    layout = search(demand, starts, ROUNDS_BEFORE_SPINE if fits(demand) else ROUNDS, stop)
    shown_bps = 0.0
    if fits(demand):
        spine = Spine(demand)
        masks = refine(spine, spine.masks(layout), REFINE_CELLS_MAX, stop)
        proof = prove(spine, masks, PROOF_CELLS_MAX, stop)
        layout = spine.layout(masks if proof.better is None else proof.better)
        if proof.complete:
            return layout, proof.bound_bps
        shown_bps = proof.bound_bps
    return layout, max(shown_bps, spectral_bound_bps(demand, layout, stop))
