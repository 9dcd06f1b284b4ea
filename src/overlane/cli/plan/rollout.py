"""`overlane plan apply|show|diff|rollback`: roll out a plan to brokers, show which plan they follow, roll back.

Every broker is first asked whether it would accept the plan; if one rejects it, no broker gets it. A broker that does
not answer stops the rollout too, unless --partial is given. Exit status: 0 done, 1 a broker rejected the plan or did
not answer, 2 the plan or the network file is invalid.
"""

from collections.abc import Callable, Sized
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import RenderableType
from rich.markup import escape

from overlane.adminapi.views import PlanView
from overlane.cli.admin.admin_client import Targets, error_lines, get_all, send_all, targets_of
from overlane.cli.exit_status import exit_on_error
from overlane.cli.output import AsJson, Query, QueryResult, Target, TokenFile, run_query
from overlane.cli.tables import OutputConsole, Wide, table
from overlane.network.plan import BadPlan, Plan, read_plan

REJECTED = 1
INVALID_PLAN = 2
PIPELINE_PLAN = Path("latest", "plans", "brokers.json")

PlanFile = Annotated[
    Path, typer.Argument(metavar="PLAN", help="Plan as JSON, or the --out directory of `overlane pipeline run`.")
]


def apply(
    plan_file: PlanFile,
    target: Target,
    check: Annotated[
        bool, typer.Option("--check", help="Only check whether all brokers would accept the plan.")
    ] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Skip brokers that do not answer.")] = False,
    token_file: TokenFile = None,
) -> None:
    """Apply a plan with failure probabilities to brokers. They follow it at once, and after a restart too."""
    targets, plan = rollout_targets(target, token_file), read_plan_file(plan_file)
    apply_plan(targets, plan, check=check, partial=partial)


def apply_plan(
    targets: Targets,
    plan: Plan,
    *,
    check: bool = False,
    partial: bool = False,
    report: Callable[[str], None] = typer.echo,
) -> None:
    """See `apply`. The plan gets a version higher than any that a broker has received."""
    responses = get_all(targets, "/plan", {}, PlanView)
    silent = [one for one in responses if one.body is None]
    reachable = Targets(tuple(one.broker for one in responses if one.body is not None), targets.token)
    if silent:
        typer.echo(error_lines(silent), err=True)
        if not partial or not reachable.brokers:
            typer.echo("no broker got the plan; see --partial", err=True)
            raise typer.Exit(REJECTED)
    version = 1 + max(one.body.newest for one in responses if one.body is not None)
    body = msgspec.json.encode(msgspec.structs.replace(plan, version=version))
    _exit_if_rejected(send_all(reachable, "PUT", "/plan", {"check": "true"}, body), "no broker got the plan")
    if check:
        report(f"{len(reachable.brokers)} brokers would follow it as version {version}")
        return
    _exit_if_rejected(
        send_all(reachable, "PUT", "/plan", {}, body), "the other brokers follow it; undo with `overlane plan rollback`"
    )
    report(f"{len(reachable.brokers)} brokers follow version {version}")


def show(target: Target, as_json: AsJson = False, token_file: TokenFile = None, wide: Wide = False) -> None:
    """Show the plan that each broker follows, and those it can roll back to."""
    run_query(Query("/plan", {}, PlanView, _table), target, as_json, False, token_file, wide)


def diff(plan_file: PlanFile, target: Target, as_json: AsJson = False, token_file: TokenFile = None) -> None:
    """Show how a plan differs from the plan that brokers follow."""
    targets, plan = rollout_targets(target, token_file), read_plan_file(plan_file)
    responses = get_all(targets, "/plan", {}, PlanView)
    answers = [one.body for one in responses if one.body is not None]
    if not answers:
        typer.echo(error_lines(responses), err=True)
        raise typer.Exit(REJECTED)
    current = max((view.plan for view in answers if view.plan is not None), key=lambda one: one.version, default=None)
    changes = differences(current, plan)
    if as_json:
        typer.echo(msgspec.json.encode([{"what": what, "from": old, "to": new} for what, old, new in changes]))
        return
    shown = table("what", "from", "to", numbers=("from", "to"))
    for what, old, new in changes:
        shown.add_row(escape(what), "-" if old is None else f"{old:.6g}", "-" if new is None else f"{new:.6g}")
    OutputConsole().print(shown if changes else "no differences")


def rollback(
    target: Target,
    to: Annotated[
        int | None,
        typer.Option("--to", min=0, help="Version to roll back to; 0: no plan (default: the previous version)."),
    ] = None,
    token_file: TokenFile = None,
) -> None:
    """Roll brokers back to an earlier plan."""
    targets = rollout_targets(target, token_file)
    parameters = {} if to is None else {"to": str(to)}
    _exit_if_rejected(send_all(targets, "POST", "/plan/rollback", parameters), "the other brokers have rolled back")
    views = [one.body for one in get_all(targets, "/plan", {}, PlanView) if one.body is not None]
    versions = ", ".join(str(version) for version in sorted({view.version for view in views}))
    typer.echo(
        f"{len(targets.brokers)} brokers follow version {versions}" if versions != "0" else "no plan is followed"
    )


def differences(old: Plan | None, new: Plan) -> list[tuple[str, float | None, float | None]]:
    """(name, old, new) of every value that differs."""
    before, after = ({} if old is None else _figures(old)), _figures(new)
    whats = sorted(before.keys() | after.keys())
    return [(what, before.get(what), after.get(what)) for what in whats if before.get(what) != after.get(what)]


def _figures(plan: Plan) -> dict[str, float]:
    found = {f"broker {name}, failure": outlook.failure for name, outlook in plan.brokers.items()}
    found |= {f"link {'-'.join(sorted(link.ends))}, failure": link.failure for link in plan.links}
    found |= {f"topic {name}, messages/s": rates.messages_per_second for name, rates in plan.topics.items()}
    return found


def rollout_targets(target: str, token_file: Path | None = None) -> Targets:
    """The brokers to call; ends the command if the target is invalid."""
    with exit_on_error():
        return targets_of(target, token_file)


def read_plan_file(file: Path) -> Plan:
    """The plan in a file, or in the output directory of the pipeline; ends the command if it is invalid."""
    wanted = file / PIPELINE_PLAN if file.is_dir() else file
    try:
        return read_plan(wanted.read_bytes())
    except (OSError, BadPlan) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        typer.echo(f"overlane: {wanted}: {why}", err=True)
        raise typer.Exit(INVALID_PLAN) from None


def _exit_if_rejected(errors: dict[str, str], consequence: str) -> None:
    """`errors`: by broker, empty where there was none."""
    lines = [f"{name} rejected it: {error}" for name, error in errors.items() if error]
    if lines:
        typer.echo("\n".join([*lines, consequence]), err=True)
        raise typer.Exit(REJECTED)


def _table(result: QueryResult[PlanView]) -> RenderableType:
    shown = table("broker", "version", "from", "links", "brokers", "topics", "kept", numbers=("version",))
    for name, view in result.answers:
        plan = view.plan
        shown.add_row(
            escape(name),
            str(view.version) if view.version else "none",
            escape(plan.source) if plan is not None else "the network file",
            *(str(len(part)) if plan is not None else "-" for part in (_parts(plan))),
            ", ".join(str(kept.version) for kept in view.kept) or "-",
        )
    return shown


def _parts(plan: Plan | None) -> tuple[Sized, Sized, Sized]:
    return ((), (), ()) if plan is None else (plan.links, plan.brokers, plan.topics)
