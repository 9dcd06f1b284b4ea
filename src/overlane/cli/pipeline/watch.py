"""`overlane pipeline watch`: deadline compliance per minute, live, and alerts on a topic."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from overlane.cli.exit_status import UNAVAILABLE, fail
from overlane.cli.pipeline.run import Conf, Lake, Master, Remote, address_of, session
from overlane.errors import OverlaneError
from overlane.pipeline.lake_listing import list_lake
from overlane.pipeline.output_directory import OutputDirectory

HEALTH_EVERY_S = 60.0


def watch(
    lake: Lake,
    out: Annotated[Path, typer.Option(help="Output directory for the table of minutes and its checkpoints.")],
    target: Annotated[
        float, typer.Option(min=0, max=1, help="Share of messages in time below which an alert is published.")
    ] = 0.99,
    alerts: Annotated[str, typer.Option(help="Topic of the alerts.")] = "overlane/alerts",
    brokers: Annotated[
        str,
        typer.Option(
            help="Admin addresses of the brokers that publish alerts, separated by commas (default: no alerts)."
        ),
    ] = "",
    token_file: Annotated[Path | None, typer.Option(help="File with the admin token of these brokers.")] = None,
    window: Annotated[str, typer.Option(help="Length of the windows that are evaluated.")] = "1 minute",
    lateness: Annotated[
        str, typer.Option(help="Maximum delay of telemetry; longer than brokers keep a file open.")
    ] = "6 minutes",
    once: Annotated[bool, typer.Option("--once", help="Process the available telemetry and exit.")] = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Compute the share of messages in time per topic, live; publish an alert when it falls below the target."""
    broker_options = None
    if brokers:
        broker_options = {"brokers": brokers}
        if token_file is not None:
            try:
                broker_options["token"] = token_file.read_text().strip()
            except OSError as refused:
                fail(f"{token_file}: {refused.strerror}")
    with session(master, remote, conf) as spark:
        from pyspark.errors import PySparkException

        from overlane.pipeline.analysis import live_compliance
        from overlane.pipeline.runner import RunFailed

        health = _health_checks(address_of(lake), out, f"{alerts}/health", broker_options)
        try:
            queries = live_compliance.watch(
                spark,
                address_of(lake),
                out,
                target,
                alerts,
                broker_options,
                window=window,
                lateness=lateness,
                once=once,
            )
            live_compliance.await_queries(queries, health)
        except PySparkException as failed:
            fail(str(failed).split("JVM stacktrace")[0].strip(), UNAVAILABLE, RunFailed.error_code)
        except KeyboardInterrupt:
            typer.echo("stopped; the next start continues from here", err=True)


def _health_checks(lake: str, out: Path, topic: str, broker_options: Mapping[str, str] | None) -> Callable[[], None]:
    """A function that publishes health alerts, at most once per minute; without brokers it does nothing."""
    if broker_options is None:
        return lambda: None
    from overlane.pipeline.analysis import health_alerts

    publish = health_alerts.publisher(broker_options, topic)
    alerts = health_alerts.HealthAlerts(out.absolute() / "live" / "state" / "health.json", publish)
    last_s = 0.0

    def check() -> None:
        nonlocal last_s
        if time.monotonic() - last_s < HEALTH_EVERY_S and last_s:
            return
        last_s = time.monotonic()
        run = OutputDirectory(out).latest()
        try:
            silent = health_alerts.silent_brokers(list_lake(lake), time.time())
            alerts.update([*silent, *health_alerts.wrong_clocks(run), *health_alerts.often_down(run)])
        except (OverlaneError, OSError) as error:  # the lake or the brokers: the next minute tries again
            typer.echo(str(error), err=True)

    return check
