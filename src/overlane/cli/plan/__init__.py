"""`overlane plan`: the solvers of `overlane.planning` on problem files, and the rollout of plans."""

import typer

from overlane.cli.commands import Command
from overlane.cli.lazy_commands import group_of

__all__: list[str] = []

COMMANDS = {
    "paths": Command(
        "overlane.cli.plan.paths",
        "Find the paths between two brokers with the highest probability of delivery within a deadline.",
    ),
    "graph": Command(
        "overlane.cli.plan.paths",
        "Find the links that carry a message from one broker to several others within a deadline.",
    ),
    "channels": Command(
        "overlane.cli.plan.channels",
        "Map subscriptions to a few multicast channels, the rest to unicast, with the least waste.",
    ),
    "reserve": Command(
        "overlane.cli.plan.reserve",
        "Compute service class, traffic specification and rate of a reservation for a publisher and a subscriber.",
    ),
    "admit": Command(
        "overlane.cli.plan.admit",
        "Simulate the reservations of many subscribers, and show which are admitted, with their paths.",
    ),
    "allocate": Command(
        "overlane.cli.plan.allocate",
        "Assign items to brokers with the least expected cost of overload, and compare with round robin.",
    ),
    "mirror": Command(
        "overlane.cli.plan.mirror",
        "Assign each item a mirror on another broker, so that any single failure costs least.",
    ),
    "casebase": Command(
        "overlane.cli.plan.case_base",
        "Compute policies for the normal state, all single and double failures, and brokers switched off at low load.",
    ),
    "apply": Command("overlane.cli.plan.rollout", "Apply a plan with failure probabilities to brokers."),
    "show": Command(
        "overlane.cli.plan.rollout", "Show the plan that each broker follows, and those it can roll back to."
    ),
    "diff": Command("overlane.cli.plan.rollout", "Show how a plan differs from the plan that brokers follow."),
    "rollback": Command("overlane.cli.plan.rollout", "Roll brokers back to an earlier plan."),
}

app = typer.Typer(
    name="plan",
    cls=group_of(COMMANDS),
    help="Solve planning problems (paths, allocation, mirrors, channels, reservations) and roll out plans to brokers.",
    no_args_is_help=True,
)


@app.callback()
def _callback() -> None:
    """Without options."""
