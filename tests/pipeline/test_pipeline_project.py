"""The project that is shipped, as Spark's own command reads it."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.pipelines.cli import load_pipeline_spec

import overlane.pipeline
from overlane.errors import ConfigError
from overlane.pipeline.session import SESSION_CONF
from overlane.pipeline.settings import PipelineSettings, read_settings
from overlane.pipeline.small_runs import SMALL_RUN_CONF
from sparks import PARTS, need_java, unmarked

PROJECT = Path(overlane.pipeline.__file__).parent / "project"
SPEC = PROJECT / "spark-pipeline.yml"


def test_configuration_becomes_settings() -> None:
    given = {"lake": "file:///srv/lake", "itemLevels": "2", "capacity": "1e4"}
    assert read_settings(given.get) == PipelineSettings("file:///srv/lake", item_levels=2, capacity=10_000.0)


def test_everything_wrong_in_a_configuration_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as wrong:
        read_settings({"itemLevels": "0", "channels": "many"}.get)
    assert str(wrong.value).splitlines() == [
        "spark.overlane: itemLevels: found '0', allowed is a whole number from 1",
        "spark.overlane: channels: found 'many', allowed is a whole number from 0",
        "spark.overlane: lake: found nothing, allowed is the location of the telemetry, such as file:///srv/lake",
    ]


def test_the_project_sets_up_sessions_as_the_command_does() -> None:
    assert load_pipeline_spec(SPEC).configuration.items() <= SESSION_CONF.items()


@PARTS
@pytest.mark.slow
def test_spark_pipelines_could_make_all_tables_of_the_project(tmp_path: Path) -> None:
    need_java()
    command = [str(Path(sys.executable).parent / "spark-pipelines"), "dry-run", "--spec", str(SPEC)]
    conf = {
        "spark.overlane.lake": (tmp_path / "lake").as_uri(),
        "spark.driver.extraJavaOptions": SMALL_RUN_CONF["spark.driver.extraJavaOptions"],
        "spark.sql.warehouse.dir": (tmp_path / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
    }
    settings = [word for item in conf.items() for word in ("--conf", "=".join(item))]
    own = {**unmarked(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run([*command, *settings], env=own, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Run is COMPLETED" in done.stderr + done.stdout
