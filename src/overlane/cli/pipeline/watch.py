"""`overlane pipeline watch`: deadlines minute by minute while it happens, and alerts on a topic."""

from pathlib import Path
from typing import Annotated

import typer

from overlane.cli.pipeline.run import Conf, Lake, Master, Remote, address_of, session, stop

BAD_OPTIONS = 2
FAILED = 1


def watch(
    lake: Lake,
    out: Annotated[Path, typer.Option(help="A directory for the table of minutes and its checkpoints.")],
    target: Annotated[
        float, typer.Option(min=0, max=1, help="The share in time below which there is an alert.")
    ] = 0.99,
    alerts: Annotated[str, typer.Option(help="The topic that alerts are published on.")] = "overlane/alerts",
    brokers: Annotated[
        str, typer.Option(help="Admin addresses of brokers that publish alerts, with commas; none: no alerts.")
    ] = "",
    token_file: Annotated[Path | None, typer.Option(help="A file with their admin token.")] = None,
    window: Annotated[str, typer.Option(help="How long the spans are that are judged.")] = "1 minute",
    lateness: Annotated[
        str, typer.Option(help="How long telemetry may be under way: longer than brokers keep a file open.")
    ] = "6 minutes",
    once: Annotated[bool, typer.Option("--once", help="Read what is there, and end.")] = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Keep the share in time of every topic up to date, and publish an alert where it falls below its target."""
    reaching = None
    if brokers:
        reaching = {"brokers": brokers}
        if token_file is not None:
            try:
                reaching["token"] = token_file.read_text().strip()
            except OSError as refused:
                stop(f"{token_file}: {refused.strerror}", BAD_OPTIONS)
    with session(master, remote, conf) as spark:
        from pyspark.errors import PySparkException

        from overlane.pipeline import live

        try:
            queries = live.watch(
                spark, address_of(lake), out, target, alerts, reaching, window=window, lateness=lateness, once=once
            )
            live.follow(queries)
        except PySparkException as failed:
            stop(str(failed).split("JVM stacktrace")[0].strip(), FAILED)
        except KeyboardInterrupt:
            typer.echo("ended; it goes on from here when it is started again", err=True)
