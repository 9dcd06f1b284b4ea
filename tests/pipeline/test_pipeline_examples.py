"""The examples for regular runs use commands and options that exist."""

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml
from typer.main import get_command

from overlane.cli.pipeline.run import run as run_command
from overlane.pipeline.object_store import is_object_store

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipeline"


def options() -> set[str]:
    app = typer.Typer()
    app.command()(run_command)
    return {name for option in get_command(app).params for name in option.opts}


def commands() -> dict[str, list[str]]:
    """What each example runs, from `overlane` on."""
    service = (EXAMPLES / "overlane-pipeline.service").read_text()
    started = next(line for line in service.splitlines() if line.startswith("ExecStart="))
    dag = (EXAMPLES / "airflow_dag.py").read_text()
    (job,) = yaml.safe_load_all((EXAMPLES / "kubernetes-cronjob.yaml").read_text())
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    places = re.search(r'PLACES = "(.*)"', dag)
    bash = re.search(r'bash_command=f"(overlane pipeline run .*?)"', dag)
    assert places is not None
    assert bash is not None
    return {
        "systemd": ["overlane", *shlex.split(started)[1:]],
        "airflow": shlex.split(bash[1].replace("{PLACES}", places[1])),
        "kubernetes": ["overlane", *container["args"]],
    }


@pytest.mark.parametrize("name", ["systemd", "airflow", "kubernetes"])
def test_an_example_runs_the_pipeline_with_options_that_exist(name: str) -> None:
    words = commands()[name]
    assert words[:3] == ["overlane", "pipeline", "run"]
    used = {word.partition("=")[0] for word in words[3:] if word.startswith("--")}
    assert {"--lake", "--out"} <= used <= options()


def test_the_cron_job_runs_one_at_a_time_and_keeps_what_it_works_on_in_the_pod() -> None:
    (job,) = yaml.safe_load_all((EXAMPLES / "kubernetes-cronjob.yaml").read_text())
    assert job["kind"] == "CronJob"
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    assert f"--work={mount['mountPath']}" in pod["containers"][0]["args"]
    assert is_object_store("s3a://overlane/tables")
    compile((EXAMPLES / "airflow_dag.py").read_text(), "airflow_dag.py", "exec")
