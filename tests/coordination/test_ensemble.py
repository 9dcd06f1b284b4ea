"""Ensembles on one machine: servers are started again, end with whoever runs them, and what is missing is said."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from services import has_zookeeper, running_ensemble

from overlane.coordination.ensemble.java import JARS_VARIABLE, java_command, server_jars
from overlane.coordination.ensemble.layout import configuration, open_ensemble
from overlane.errors import ConfigError, Unavailable
from waiting import eventually

pytestmark = pytest.mark.xdist_group("zookeeper")
needs_zookeeper = pytest.mark.skipif(not has_zookeeper(), reason="no Java, or no ZooKeeper")


def servers_of(folder: Path) -> dict[str, int]:
    """The processes of an ensemble's servers, by configuration file."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        for word in words:
            if word.startswith(os.fsencode(folder)) and word.endswith(b"zoo.cfg"):
                found[word.decode()] = int(process.name)
    return found


@pytest.mark.slow
@needs_zookeeper
def test_a_server_that_dies_is_started_again(tmp_path: Path) -> None:
    with running_ensemble(tmp_path, servers=1):
        (before,) = servers_of(tmp_path).values()
        os.kill(before, signal.SIGKILL)
        eventually(lambda: servers_of(tmp_path) and before not in servers_of(tmp_path).values())
    assert servers_of(tmp_path) == {}


@pytest.mark.slow
@needs_zookeeper
def test_servers_end_with_whoever_runs_them_even_if_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "overlane", "zookeeper", "--servers", "1", "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert servers_of(tmp_path)
        process.kill()
    eventually(lambda: not servers_of(tmp_path))


@pytest.mark.slow
@needs_zookeeper
def test_an_ensemble_runs_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "overlane", "zookeeper", "--servers", "1", "--data", str(tmp_path)]
    with running_ensemble(tmp_path, servers=1):
        second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr == f"overlane: {tmp_path}: its ensemble is running already [OVL-201]\n"


def test_an_ensemble_has_the_number_of_servers_it_was_made_with(tmp_path: Path) -> None:
    made = open_ensemble(tmp_path, 3)
    assert open_ensemble(tmp_path, 3) == made
    assert len({port for one in made.servers for port in (one.client, one.peer, one.election)}) == 9
    with pytest.raises(ConfigError, match="--servers: found 5, allowed is 3"):
        open_ensemble(tmp_path, 5)


def test_a_damaged_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "ensemble.json").write_text("{")
    with pytest.raises(ConfigError, match=r"ensemble\.json"):
        open_ensemble(tmp_path, 3)


def test_one_server_needs_no_peers(tmp_path: Path) -> None:
    assert "server.1=" not in configuration(tmp_path, open_ensemble(tmp_path / "one", 1), 1)
    assert "server.3=" in configuration(tmp_path, open_ensemble(tmp_path / "three", 3), 1)


def test_missing_jars_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    (tmp_path / "zookeeper-3.9.5.jar").touch()
    with pytest.raises(Unavailable, match="no jar of zookeeper-jute, slf4j-api, metrics-core, snappy-java"):
        server_jars()


def test_without_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Unavailable, match="apt-get install openjdk-17-jre-headless"):
        java_command()


def test_a_java_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Unavailable, match="version 1; ZooKeeper needs Java 11 or newer"):
        java_command()
