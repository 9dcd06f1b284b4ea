"""Run metrics: what each table of a run cost, as JSON, as Prometheus text, and as a graph of what reads what.

run.json       the whole summary
metrics.prom   for the textfile collector of the Prometheus node exporter
lineage.dot    for Graphviz: an arrow from each table to those that are computed from it
"""

from typing import Any

import msgspec

from overlane.pipeline.output_directory import Run

SHUFFLED = "shuffleBytesWritten"


class TableMetrics(msgspec.Struct, frozen=True):
    seconds: float
    """From start to completion; several tables are computed at once."""
    rows: int
    size_bytes: int
    written_bytes: int
    """By this run; the rest was taken over."""
    shuffle_bytes: int
    hours: int
    """That were computed, of a table that is divided by hours."""
    reads: list[str]


class Summary(msgspec.Struct, frozen=True):
    run: int
    lake: str
    started_ns: int
    finished_ns: int
    rows: dict[str, int]
    tables: dict[str, TableMetrics]
    """With the ingested tables, `raw_...`, that had new files."""
    hours: int
    """Hours with new rows."""
    raw_format: str
    tables_format: str
    settings: str
    sealed_before_s: int = 0
    """Hours before this one are not computed again: their ingested rows have been deleted."""


def write(run: Run, summary: Summary) -> None:
    run.summary_file.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2))
    (run.path / "metrics.prom").write_text(prometheus(summary))
    (run.path / "lineage.dot").write_text(lineage(summary))


def prometheus(summary: Summary) -> str:
    lines = []

    def add(name: str, help_text: str, values: dict[str, float]) -> None:
        lines.extend([f"# HELP overlane_pipeline_{name} {help_text}", f"# TYPE overlane_pipeline_{name} gauge"])
        lines.extend(f"overlane_pipeline_{name}{labels} {value}" for labels, value in values.items())

    add("run", "Number of the last completed run.", {"": summary.run})
    add("finished_seconds", "When it was completed, since 1970.", {"": summary.finished_ns / 1e9})
    add("duration_seconds", "How long it took.", {"": (summary.finished_ns - summary.started_ns) / 1e9})
    add("touched_hours", "Hours with new rows.", {"": summary.hours})
    for field, help_text in (
        ("seconds", "Time that a table took."),
        ("rows", "Rows of a table."),
        ("size_bytes", "Bytes of a table."),
        ("written_bytes", "Bytes of a table that this run has written."),
        ("shuffle_bytes", "Bytes that were shuffled for a table."),
    ):
        values = {f'{{table="{name}"}}': getattr(of, field) for name, of in sorted(summary.tables.items())}
        add(f"table_{field}", help_text, values)
    return "\n".join(lines) + "\n"


def lineage(summary: Summary) -> str:
    edges = [f'  "{read}" -> "{name}";' for name, of in sorted(summary.tables.items()) for read in of.reads]
    return "\n".join(["digraph tables {", "  rankdir=LR;", *edges, "}", ""])


def shuffled_bytes(frame: Any) -> int:
    """What Spark tells about the execution of a frame; 0 where it tells nothing."""
    info = getattr(frame, "executionInfo", None)
    metrics = None if info is None else info.metrics
    if metrics is None:
        return 0
    told = [value for plan in metrics._metrics for value in plan.metrics]
    return sum(int(value.value) for value in told if value.name == SHUFFLED)
