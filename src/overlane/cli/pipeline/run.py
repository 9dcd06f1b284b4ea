"""`overlane pipeline run` and `dry-run`: all tables from the lake, on this machine, a cluster, or a Spark that runs.

Exit status: 0 done, 1 a table could not be made, Spark is not to be had or brokers do not take the plan, 2 the options
are wrong.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from overlane.cli.plan import following
from overlane.errors import Unavailable
from overlane.pipeline.brevity import BRIEF, CASE_TASKS, is_small
from overlane.pipeline.session import open_session
from overlane.pipeline.settings import Settings

FAILED = 1
BAD_OPTIONS = 2

Lake = Annotated[str, typer.Option(help="Where brokers write telemetry: a directory, or any address Spark reads.")]
Master = Annotated[str | None, typer.Option(help="A cluster, such as spark://host:7077; local[*] if not given.")]
Remote = Annotated[str | None, typer.Option(help="A Spark Connect server, such as sc://host:15002.")]
Levels = Annotated[int, typer.Option(min=1, help="Topics that share so many levels are one item.")]
Capacity = Annotated[float | None, typer.Option(min=0, help="Messages a second that a broker can carry.")]
Channels = Annotated[int, typer.Option(min=0, help="How many multicast channels there are.")]
Domain = Annotated[str, typer.Option(help="The name of the domain that the lake is of.")]
Conf = Annotated[list[str] | None, typer.Option(help="A setting of Spark, NAME=VALUE. May be given again.")]
Apply = Annotated[
    str | None,
    typer.Option("--apply", metavar="NETWORK.toml", help="Give the plan to the brokers of this network at once."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")]


def run(
    lake: Lake,
    out: Annotated[Path, typer.Option(help="A directory for the tables, seen by driver and executors alike.")],
    master: Master = None,
    remote: Remote = None,
    item_levels: Levels = 1,
    capacity: Capacity = None,
    channels: Channels = 8,
    domain: Domain = "default",
    conf: Conf = None,
    apply: Apply = None,
    as_json: AsJson = False,
) -> None:
    """Make all tables from what is in the lake; telemetry that an earlier run has read is not read again."""
    brokers = following.audience_of(apply) if apply is not None else None
    settings, brief = Settings(address_of(lake), domain, item_levels, capacity, channels), {}
    if is_small(settings.lake, out):
        settings, brief = replace(settings, case_tasks=CASE_TASKS), BRIEF
    with session(master, remote, conf, brief) as spark, _running() as running:
        done, summary = running.run(spark, settings, out, _teller(Console(stderr=True)))
    if as_json:
        typer.echo(msgspec.json.encode(summary))
    else:
        _show(done, summary)
    if brokers is not None:
        following.give(brokers, following.read(out), told=lambda line: typer.echo(line, err=as_json))


def _show(done: Any, summary: Any) -> None:
    table = Table("table", "rows", title=f"Run {summary.run}: {done.path}")
    table.columns[1].justify = "right"
    for name, rows in summary.rows.items():
        table.add_row(name, f"{rows:,}")
    Console().print(table)


def dry_run(
    lake: Lake, master: Master = None, remote: Remote = None, conf: Conf = None, as_json: AsJson = False
) -> None:
    """Check that all tables could be made, and name them; nothing is written."""
    with session(master, remote, conf, BRIEF) as spark, _running() as running:
        names = running.dry_run(spark, Settings(address_of(lake)))
    typer.echo(msgspec.json.encode(names) if as_json else f"{len(names)} tables: {', '.join(names)}")


@contextmanager
def session(
    master: str | None, remote: str | None, conf: list[str] | None, suited: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """A session with settings that suit what it is for, and then those that are given."""
    # Tables of a few rows are sorted in one place, which Spark finds remarkable.
    warnings.filterwarnings("ignore", message=".*No Partition Defined for Window.*")
    if master is not None and remote is not None:
        stop("--master and --remote: one of them is enough", BAD_OPTIONS)
    given = dict(each.split("=", 1) for each in conf or [] if "=" in each)
    if len(given) < len(conf or []):
        stop("--conf: NAME=VALUE is wanted, each name once", BAD_OPTIONS)
    try:
        with open_session(master, remote, {**(suited or {}), **given}) as spark:
            yield spark
    except Unavailable as missing:
        stop(str(missing), FAILED)


@contextmanager
def _running() -> Iterator[Any]:
    from overlane.pipeline import running  # not before it is known that Spark is there

    try:
        yield running
    except running.RunFailed as failed:
        stop(f"the run failed, the tables of the run before are untouched: {failed}", FAILED)


def _teller(console: Console) -> Callable[[Any], None]:
    def tell(progress: Any) -> None:
        if progress.state == "completed":
            console.print(f"{progress.done:>3}/{progress.tables} {progress.table}", highlight=False)
        elif progress.state == "failed":
            console.print(f"failed: {progress.table} {progress.reason}", highlight=False, markup=False)

    return tell


def address_of(lake: str) -> str:
    return lake if "://" in lake else Path(lake).absolute().as_uri()


def stop(reason: str, status: int) -> NoReturn:
    typer.echo(f"overlane: {reason}", err=True)
    raise typer.Exit(status)
