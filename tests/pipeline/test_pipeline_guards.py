"""What a run needs and does not find is told before Spark is started, and nothing that is read changes."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from overlane.cli.main import app
from overlane.pipeline.output_directory import OutputDirectory


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java is not found: whoever starts Spark fails with another message."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)


def lake_in(path: Path) -> Path:
    file = path / "lake" / "links" / "date=2026-01-02" / "a-1-1.parquet"
    file.parent.mkdir(parents=True)
    file.touch()
    return path / "lake"


def told(out: Path, lake: Path, *words: str) -> str:
    before = OutputDirectory(out).latest()
    done = CliRunner().invoke(app, ["pipeline", "run", "--lake", str(lake), "--out", str(out), *words])
    assert done.exit_code == 1, done.output
    assert OutputDirectory(out).latest() == before
    return " ".join(done.stderr.split())


def test_a_lake_that_is_missing_or_empty(tmp_path: Path) -> None:
    out = OutputDirectory(tmp_path / "out")
    out.complete(out.begin())
    assert "nowhere: no such directory" in told(out.path, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no telemetry; expected files such as" in told(out.path, tmp_path / "empty")


def test_an_output_directory_that_another_run_or_version_uses(tmp_path: Path) -> None:
    lake, out = lake_in(tmp_path), tmp_path / "out"
    with OutputDirectory(out).locked():
        assert "another pipeline run is writing to it" in told(out, lake)
    (tmp_path / "old" / "state").mkdir(parents=True)
    assert "was written by an earlier version" in told(tmp_path / "old", lake)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert f"Spark at sc://127.0.0.1:{port}" in told(
            tmp_path / "out", lake_in(tmp_path), "--remote", f"sc://127.0.0.1:{port}"
        )
    assert "expected an address such as" in told(tmp_path / "out", tmp_path / "lake", "--remote", "host:15002")


def test_with_all_that_is_needed_spark_is_started(tmp_path: Path) -> None:
    assert "requires Java 17 or newer" in told(tmp_path / "out", lake_in(tmp_path))
