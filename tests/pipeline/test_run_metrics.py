"""What a run cost, for people, Prometheus and Graphviz."""

from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from overlane.pipeline import run_metrics
from overlane.pipeline.output_directory import OutputDirectory
from overlane.pipeline.run_metrics import Summary, TableMetrics

PEAKS = TableMetrics(1.5, 20, 3_000, 1_000, 77, 2, ["load_windows", "alive"])
SUMMARY = Summary(7, "file:///lake", 10**18, 10**18 + 5 * 10**9, {"peaks": 20}, {"peaks": PEAKS}, 2, "r", "t", "s")


def test_metrics_are_written_beside_the_tables(tmp_path: Path) -> None:
    run = OutputDirectory(tmp_path).begin()
    run_metrics.write(run, SUMMARY)
    assert msgspec.json.decode(run.summary_file.read_bytes(), type=Summary) == SUMMARY
    found = {
        (sample.name, sample.labels.get("table")): sample.value
        for family in text_string_to_metric_families((run.path / "metrics.prom").read_text())
        for sample in family.samples
    }
    assert found["overlane_pipeline_duration_seconds", None] == 5.0
    assert found["overlane_pipeline_table_seconds", "peaks"] == 1.5
    assert found["overlane_pipeline_table_shuffle_bytes", "peaks"] == 77
    assert len(found) == 9
    assert '"alive" -> "peaks";' in (run.path / "lineage.dot").read_text()
