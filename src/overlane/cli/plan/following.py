"""`overlane plan apply|show|diff|rollback`: give the brokers of a network a plan, see which they follow, go back.

All are asked first whether they would take it; if one refuses, none gets it. One that does not answer is told of:
with --partial the others get it all the same. Exit status: 0 done, 1 somebody refused or did not answer, 2 the plan or
the network file is wrong.
"""

from collections.abc import Callable, Sized
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from overlane.cli import faults
from overlane.cli.asking import Audience, ask, audience, reasons, tell_all
from overlane.cli.showing import AsJson, Round, TokenFile, table
from overlane.cli.showing import Question as Asked
from overlane.cli.showing import run as show_answers
from overlane.network.plan import BadPlan, Plan, read_plan
from overlane.node.views import PlanView

REFUSED = 1
BAD_PLAN = 2
MADE_BY_PIPELINE = Path("latest", "plans", "brokers.json")

PlanFile = Annotated[
    Path, typer.Argument(metavar="PLAN", help="A plan in JSON, or the --out directory of `overlane pipeline run`.")
]
Target = Annotated[
    str, typer.Argument(metavar="ADDRESS|NETWORK.toml", help="A broker's admin address, or a file: all its brokers.")
]


def apply(
    plan_file: PlanFile,
    target: Target,
    check: Annotated[
        bool, typer.Option("--check", help="Ask whether they would take it, and leave it at that.")
    ] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Do without those that do not answer.")] = False,
    token_file: TokenFile = None,
) -> None:
    """Give brokers a plan: what history says of their failures. They follow it at once and after a restart."""
    asked, plan = audience_of(target, token_file), read(plan_file)
    give(asked, plan, check=check, partial=partial)


def give(
    asked: Audience,
    plan: Plan,
    *,
    check: bool = False,
    partial: bool = False,
    told: Callable[[str], None] = typer.echo,
) -> None:
    """See `apply`; the plan gets the next version that none of them has had."""
    outcomes = ask(asked, "/plan", {}, PlanView)
    silent = [one for one in outcomes if one.answer is None]
    present = Audience(tuple(one.place for one in outcomes if one.answer is not None), asked.token)
    if silent:
        typer.echo(reasons(silent), err=True)
        if not partial or not present.places:
            typer.echo("nobody was given the plan; see --partial", err=True)
            raise typer.Exit(REFUSED)
    version = 1 + max(one.answer.newest for one in outcomes if one.answer is not None)
    body = msgspec.json.encode(msgspec.structs.replace(plan, version=version))
    _insist(tell_all(present, "PUT", "/plan", {"check": "true"}, body), "nobody was given the plan")
    if check:
        told(f"{len(present.places)} brokers would follow it as version {version}")
        return
    _insist(tell_all(present, "PUT", "/plan", {}, body), "the others follow it; `overlane plan rollback` takes it back")
    told(f"{len(present.places)} brokers follow version {version}")


def show(target: Target, as_json: AsJson = False, token_file: TokenFile = None) -> None:
    """Show which plan each broker follows, and which ones it could go back to."""
    show_answers(Asked("/plan", {}, PlanView, _table), target, as_json, False, token_file)


def diff(plan_file: PlanFile, target: Target, as_json: AsJson = False, token_file: TokenFile = None) -> None:
    """Show what a plan would change of the plan that is followed."""
    asked, plan = audience_of(target, token_file), read(plan_file)
    outcomes = ask(asked, "/plan", {}, PlanView)
    answers = [one.answer for one in outcomes if one.answer is not None]
    if not answers:
        typer.echo(reasons(outcomes), err=True)
        raise typer.Exit(REFUSED)
    followed = max((view.plan for view in answers if view.plan is not None), key=lambda one: one.version, default=None)
    changes = differences(followed, plan)
    if as_json:
        typer.echo(msgspec.json.encode([{"what": what, "from": old, "to": new} for what, old, new in changes]))
        return
    shown = table("what", "from", "to", numbers=("from", "to"))
    for what, old, new in changes:
        shown.add_row(escape(what), "-" if old is None else f"{old:.6g}", "-" if new is None else f"{new:.6g}")
    console = Console(highlight=False)
    console.print(shown if changes else "It changes nothing.")


def rollback(
    target: Target,
    to: Annotated[int | None, typer.Option("--to", min=0, help="This version; 0: the network file alone.")] = None,
    token_file: TokenFile = None,
) -> None:
    """Let brokers follow the plan of before again."""
    asked = audience_of(target, token_file)
    parameters = {} if to is None else {"to": str(to)}
    _insist(tell_all(asked, "POST", "/plan/rollback", parameters), "the others have gone back")
    views = [one.answer for one in ask(asked, "/plan", {}, PlanView) if one.answer is not None]
    versions = ", ".join(str(version) for version in sorted({view.version for view in views}))
    typer.echo(f"{len(asked.places)} brokers follow version {versions}" if versions != "0" else "no plan is followed")


def differences(old: Plan | None, new: Plan) -> list[tuple[str, float | None, float | None]]:
    """(what, from, to) of everything that is another in the new plan."""
    before, after = ({} if old is None else _figures(old)), _figures(new)
    whats = sorted(before.keys() | after.keys())
    return [(what, before.get(what), after.get(what)) for what in whats if before.get(what) != after.get(what)]


def _figures(plan: Plan) -> dict[str, float]:
    found = {f"broker {name}, failure": outlook.failure for name, outlook in plan.brokers.items()}
    found |= {f"link {'-'.join(sorted(link.ends))}, failure": link.failure for link in plan.links}
    found |= {f"topic {name}, messages/s": rates.messages_per_second for name, rates in plan.topics.items()}
    return found


def audience_of(target: str, token_file: Path | None = None) -> Audience:
    with faults.told():
        return audience(target, token_file)


def read(file: Path) -> Plan:
    """A plan, or that of a run of the pipeline; ends the command where it is wrong."""
    wanted = file / MADE_BY_PIPELINE if file.is_dir() else file
    try:
        return read_plan(wanted.read_bytes())
    except (OSError, BadPlan) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        typer.echo(f"overlane: {wanted}: {why}", err=True)
        raise typer.Exit(BAD_PLAN) from None


def _insist(outcomes: dict[str, str], otherwise: str) -> None:
    refusals = [f"{name} refuses: {why}" for name, why in outcomes.items() if why]
    if refusals:
        typer.echo("\n".join([*refusals, otherwise]), err=True)
        raise typer.Exit(REFUSED)


def _table(now: Round[PlanView]) -> Table:
    shown = table("broker", "version", "from", "links", "brokers", "topics", "kept", numbers=("version",))
    for name, view in now.answers:
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
