"""`overlane pipeline watch`: deadline compliance per minute, live, and alerts on a topic."""

from pathlib import Path
from typing import Annotated

import typer

from overlane.cli.exit_status import UNAVAILABLE, fail
from overlane.cli.pipeline.run import Conf, Lake, Master, Remote, address_of, session


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
            live_compliance.await_queries(queries)
        except PySparkException as failed:
            fail(str(failed).split("JVM stacktrace")[0].strip(), UNAVAILABLE, RunFailed.error_code)
        except KeyboardInterrupt:
            typer.echo("stopped; the next start continues from here", err=True)
