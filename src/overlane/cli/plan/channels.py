"""`overlane plan channels`: map advertisements to multicast channels."""

from time import monotonic
from typing import Literal

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from overlane.cli.plan.command import AsJson, ProblemFile, run_solver
from overlane.planning.channels import Advertisement, ChannelPlan, plan_channels
from overlane.planning.problem import BadProblem

UNICAST_SHOWN_MAX = 10
NAMES_SHOWN_MAX = 12


class AdvertisementGiven(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    rate_bps: float
    subscribers: list[str]


class ChannelsProblem(msgspec.Struct, forbid_unknown_fields=True):
    advertisements: list[AdvertisementGiven]
    channels: int
    unicast_weight: float = 1.0
    time_limit_s: float = 60.0


class ChannelAnswer(msgspec.Struct):
    members: tuple[str, ...]
    advertisements: tuple[str, ...]


class ChannelsAnswer(msgspec.Struct):
    channels: list[ChannelAnswer]
    unicast: tuple[tuple[str, str], ...]
    cost_bps: float
    waste_bps: float
    bound_bps: float
    status: Literal["optimal", "feasible"]
    unicast_bps: float
    all_unicast_bps: float
    greedy_bps: float
    clustering_bps: float


def channels(problem: ProblemFile, as_json: AsJson = False) -> None:
    """Map subscriptions to a few multicast channels, the rest to unicast, with the least waste."""
    run_solver(problem, ChannelsProblem, _solve, _show, as_json)


def _solve(problem: ChannelsProblem) -> ChannelsAnswer:
    if not problem.time_limit_s > 0:
        raise BadProblem("time_limit_s", f"{problem.time_limit_s:g}", "a number of seconds above 0")
    given = [Advertisement(each.name, each.rate_bps, tuple(each.subscribers)) for each in problem.advertisements]
    end_s = monotonic() + problem.time_limit_s
    plan = plan_channels(given, problem.channels, problem.unicast_weight, stop=lambda: monotonic() > end_s)
    return _answer(plan)


def _answer(plan: ChannelPlan) -> ChannelsAnswer:
    return ChannelsAnswer(
        channels=[ChannelAnswer(each.members, each.advertisements) for each in plan.channels],
        unicast=plan.cost.unicast,
        cost_bps=plan.cost.total_bps,
        waste_bps=plan.cost.waste_bps,
        bound_bps=plan.bound_bps,
        status=plan.status,
        unicast_bps=plan.cost.unicast_bps,
        all_unicast_bps=plan.all_unicast_bps,
        greedy_bps=plan.greedy_bps,
        clustering_bps=plan.clustering_bps,
    )


def _show(problem: ChannelsProblem, found: ChannelsAnswer, console: Console) -> None:
    table = Table("channel", "members", "advertisements", "sent bps", title="Channels")
    rate_bps = {each.name: each.rate_bps for each in problem.advertisements}
    for number, channel in enumerate(found.channels, start=1):
        sent_bps = sum(rate_bps[name] for name in channel.advertisements)
        table.add_row(str(number), _names(channel.members), _names(channel.advertisements), f"{sent_bps:,.6g}")
    console.print(table)

    pairs = [f"{name} to {node}" for name, node in found.unicast[:UNICAST_SHOWN_MAX]]
    rest = len(found.unicast) - len(pairs)
    if pairs:
        console.print(f"By unicast: {escape(', '.join(pairs))}" + (f" and {rest:,} more" if rest else ""))

    costs = Table("", "bps", title="Cost")
    costs.add_row("waste: unwanted or received twice", f"{found.waste_bps:,.0f}")
    costs.add_row("unicast", f"{found.unicast_bps:,.0f}")
    costs.add_row("together", f"{found.cost_bps:,.0f}")
    costs.add_row("no mapping costs less than", f"{found.bound_bps:,.0f}")
    costs.add_row("everything by unicast", f"{found.all_unicast_bps:,.0f}")
    costs.add_row("heaviest first (IndiQoS)", f"{found.greedy_bps:,.0f}")
    costs.add_row("k-means clustering", f"{found.clustering_bps:,.0f}")
    costs.columns[1].justify = "right"
    console.print(costs)
    if found.status == "optimal":
        console.print("Optimal: no mapping costs less.")
    else:
        gap = (found.cost_bps - found.bound_bps) / found.cost_bps
        console.print(f"Feasible: at most {gap:.1%} above the optimum.")


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    more = len(names) - NAMES_SHOWN_MAX
    return escape(shown + (f" and {more} more" if more > 0 else ""))
