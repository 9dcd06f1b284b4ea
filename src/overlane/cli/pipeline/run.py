"""`overlane pipeline run` and `dry-run`: compute all tables from the lake, on this machine, a cluster or Spark Connect.

Exit status: 0 done, 1 a table failed, the lake or Spark is unavailable, or a broker rejected the plan, 2 invalid
options, 3 the telemetry is not as expected (`--expect`).
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from overlane.cli.exit_status import UNAVAILABLE, exit_on_error, fail
from overlane.cli.pipeline.guards import check_remote, check_spark, ended_by_sigterm
from overlane.cli.pipeline.placement import read_placement
from overlane.cli.plan import rollout
from overlane.errors import Unavailable
from overlane.pipeline.expectations import Expectations, read_expectations, seconds, unmet
from overlane.pipeline.lake_listing import list_lake
from overlane.pipeline.object_store import ObjectStore, is_object_store, work_directory
from overlane.pipeline.output_directory import OutputDirectory
from overlane.pipeline.session import open_session
from overlane.pipeline.settings import KEEP_RAW_MIN_S, DomainPlacement, PipelineSettings
from overlane.pipeline.small_runs import CASE_TASKS, SMALL_RUN_CONF, is_small_run

NOT_AS_EXPECTED = 3
DEFAULT_DOMAIN = "default"

Lake = Annotated[str, typer.Option(help="Lake with the telemetry: a directory, or a URL that Spark can read.")]
Master = Annotated[str | None, typer.Option(help="Spark master, such as spark://host:7077 (default: local[*]).")]
Remote = Annotated[str | None, typer.Option(help="Spark Connect server, such as sc://host:15002.")]
Levels = Annotated[int, typer.Option(min=1, help="Number of leading topic levels that form an item.")]
Capacity = Annotated[float | None, typer.Option(min=0, help="Capacity of a broker in messages per second.")]
Residence = Annotated[
    float,
    typer.Option(
        min=0.1, metavar="MS", help="Time that 99 % of the messages may stay in a broker, to measure its capacity."
    ),
]
Channels = Annotated[int, typer.Option(min=0, help="Number of multicast channels.")]
Domain = Annotated[str | None, typer.Option(help="Domain of the lake (default: that of --network, or `default`).")]
NetworkFile = Annotated[
    Path | None,
    typer.Option("--network", metavar="NETWORK.toml", help="Plan the placement of the items of this network."),
]
Conf = Annotated[list[str] | None, typer.Option(help="Spark setting, NAME=VALUE; repeatable.")]
Apply = Annotated[
    str | None,
    typer.Option("--apply", metavar="NETWORK.toml", help="Apply the plan to the brokers of this network."),
]
Expect = Annotated[
    Path | None,
    typer.Option(metavar="FILE.toml", help="Expectations of the telemetry; exit status 3 if one is not met."),
]
KeepRaw = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Delete ingested rows that are older (30d, 12h); tables stay (default: never)."),
]
Work = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where a run for an object store works (default: in the cache of the user)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def run(
    lake: Lake,
    out: Annotated[
        str,
        typer.Option(help="Tables: a directory accessible to driver and executors, or an object store (s3a://...)."),
    ],
    master: Master = None,
    remote: Remote = None,
    item_levels: Levels = 1,
    capacity: Capacity = None,
    residence_ms: Residence = 10.0,
    channels: Channels = 8,
    domain: Domain = None,
    network: NetworkFile = None,
    conf: Conf = None,
    apply: Apply = None,
    expect: Expect = None,
    keep_raw: KeepRaw = None,
    work: Work = None,
    as_json: AsJson = False,
) -> None:
    """Compute all tables from the lake. Telemetry that an earlier run has read is not read again."""
    brokers = rollout.rollout_targets(apply) if apply is not None else None
    limits = read_expectations(expect) if expect is not None else None
    placement = DomainPlacement()
    if network is not None:
        with exit_on_error():
            domain, placement = read_placement(network, domain)
    settings = PipelineSettings(
        address_of(lake),
        domain or DEFAULT_DOMAIN,
        item_levels,
        capacity,
        residence_ms,
        channels,
        placement,
        keep_raw_s=None if keep_raw is None else _kept_for_s(keep_raw),
    )
    brief: Mapping[str, str] = {}
    with exit_on_error():
        output, store = _output_of(out, work)
    with exit_on_error(), ended_by_sigterm(), output.locked():
        # What is missing is told before Spark is started.
        check_spark()
        files = list_lake(settings.lake)
        check_remote(remote)
        if store is not None:
            store.fetch(output)
        if is_small_run(settings.lake, output, files):
            settings, brief = replace(settings, case_tasks=CASE_TASKS), SMALL_RUN_CONF
        output.spark_log.unlink(missing_ok=True)
        with session(master, remote, conf, brief, output.spark_log) as spark, _runner(output.spark_log) as runner:
            done, summary = runner.run(spark, settings, output, _progress_printer(Console(stderr=True)))
        output.spark_log.unlink(missing_ok=True)
        if store is not None:
            store.publish(output, done)
    if as_json:
        typer.echo(msgspec.json.encode(summary))
    else:
        _show(out if store is not None else done.path, summary)
    if limits is not None:
        _judge(limits, done)
    if brokers is not None:
        plan = rollout.read_plan_file(output.path)
        rollout.apply_plan(brokers, plan, report=lambda line: typer.echo(line, err=as_json))


def _output_of(out: str, work: Path | None) -> tuple[OutputDirectory, ObjectStore | None]:
    """Where the run works, and the store that it is published to."""
    if is_object_store(out):
        return OutputDirectory(work or work_directory(out)), ObjectStore(out)
    if work is not None:
        fail("--work is for an --out in an object store, such as s3a://bucket/tables")
    return OutputDirectory(out.removeprefix("file://")), None


def _show(where: object, summary: Any) -> None:
    table = Table("table", "rows", title=f"Run {summary.run}: {where}")
    table.columns[1].justify = "right"
    for name, rows in summary.rows.items():
        table.add_row(name, f"{rows:,}")
    Console().print(table)


def dry_run(
    lake: Lake, master: Master = None, remote: Remote = None, conf: Conf = None, as_json: AsJson = False
) -> None:
    """Check that all tables can be computed, and list them; writes nothing."""
    with session(master, remote, conf, SMALL_RUN_CONF) as spark, _runner() as runner:
        names = runner.dry_run(spark, PipelineSettings(address_of(lake)))
    typer.echo(msgspec.json.encode(names) if as_json else f"{len(names)} tables: {', '.join(names)}")


@contextmanager
def session(
    master: str | None,
    remote: str | None,
    conf: list[str] | None,
    suited: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[Any]:
    """A Spark session. Settings in `conf` override those in `suited`."""
    # Small tables are sorted in one partition on purpose; Spark warns about it.
    warnings.filterwarnings("ignore", message=".*No Partition Defined for Window.*")
    if master is not None and remote is not None:
        fail("--master and --remote exclude each other")
    given = dict(each.split("=", 1) for each in conf or [] if "=" in each)
    if len(given) < len(conf or []):
        fail("--conf: expected NAME=VALUE, each name once")
    try:
        with open_session(master, remote, {**(suited or {}), **given}, log) as spark:
            yield spark
    except Unavailable as missing:
        fail(missing)


@contextmanager
def _runner(log: Path | None = None) -> Iterator[Any]:
    from overlane.pipeline import runner  # imports PySpark, which may be missing

    try:
        yield runner
    except runner.RunFailed as failed:
        see = f"; see {log}" if log is not None and log.is_file() and log.stat().st_size else ""
        told = f"the run failed; the tables of the previous run are unchanged: {failed}{see}"
        fail(told, UNAVAILABLE, failed.error_code)


def _progress_printer(console: Console) -> Callable[[Any], None]:
    def show(progress: Any) -> None:
        if progress.state == "completed":
            console.print(f"{progress.done:>3}/{progress.tables} {progress.table}", highlight=False)
        elif progress.state == "failed":
            console.print(f"failed: {progress.table} {progress.reason}", highlight=False, markup=False)

    return show


def address_of(lake: str) -> str:
    return lake if "://" in lake else f"file://{Path(lake).absolute()}"


def _kept_for_s(text: str) -> float:
    try:
        keep_s = seconds(text)
    except ValueError:
        keep_s = 0.0
    if not keep_s >= KEEP_RAW_MIN_S:
        fail(f"--keep-raw {text}: expected a time of at least an hour, such as 30d or 12h")
    return keep_s


def _judge(limits: Expectations, done: Any) -> None:
    """Print what is not as expected, and end with its exit status."""
    failed = unmet(limits, done, time.time_ns())
    for line in failed:
        typer.echo(f"not as expected: {line}", err=True)
    if failed:
        raise typer.Exit(NOT_AS_EXPECTED)
