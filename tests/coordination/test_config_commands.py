"""`overlane config push`, `pull` and `diff` against a real ZooKeeper server: versions, and wrong files."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from services import has_zookeeper
from typer.testing import CliRunner

from overlane.cli.coordination.config import app

if TYPE_CHECKING:
    from _tiers import Ensemble

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("zookeeper"),
    pytest.mark.usefixtures("bench_folder"),
    pytest.mark.skipif(not has_zookeeper(), reason="no Java, or no ZooKeeper"),
]

FIRST = '[limits]\nqueue = "2MiB"\n[topics."alarms/#"]\nreliability = "reliable"\n'
SECOND = FIRST.replace("2MiB", "3MiB")
NOTHING_THERE, DIFFERENT, WRONG = 1, 1, 2


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory, bench_folder: None) -> "Iterator[Ensemble]":  # noqa: ARG001
    from _tiers import Ensemble

    made = Ensemble(tmp_path_factory.mktemp("zookeeper") / "servers", servers=1)
    made.start()
    yield made
    made.stop()


class Config:
    """Commands for one overlay; its file says where ZooKeeper is, in a table of its own."""

    def __init__(self, folder: Path, addresses: str, path: str) -> None:
        self.file = folder / "plant.toml"
        self._head = f'[coordination]\nzookeeper = "{addresses}"\npath = "{path}"\n'
        self._where = ["--zookeeper", addresses, "--path", path]

    def written(self, text: str) -> str:
        self.file.write_text(self._head + text)
        return self._head + text

    def run(self, *words: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, list(words))
        return done.exit_code, done.stdout, done.stderr

    def push(self, *options: str) -> tuple[int, str, str]:
        return self.run("push", str(self.file), *options)

    def pulled(self) -> str:
        """By the options; where the file says it, the same."""
        by_options, by_file = self.run("pull", *self._where), self.run("pull", str(self.file))
        assert by_options == by_file
        assert by_options[0] == 0
        return by_options[1]


@pytest.fixture
def config(tmp_path: Path, ensemble: "Ensemble", request: pytest.FixtureRequest) -> Config:
    return Config(tmp_path, ensemble.addresses, f"/{request.node.name}")


def test_every_push_of_another_text_is_another_version_and_the_same_text_is_none(config: Config) -> None:
    for text, version in ((FIRST, 1), (SECOND, 2), (SECOND, 2), (FIRST, 3)):
        pushed = config.written(text)
        assert config.push() == (0, f"version {version}\n", "")
        assert config.pulled() == pushed


def test_a_wrong_file_is_refused_whole_with_every_mistake_and_changes_nothing(config: Config) -> None:
    good = config.written(FIRST)
    config.push()
    config.written(SECOND + '[limmits]\nqueue = "1MiB"\n[topics."reports/#"]\nreliability = "certain"\n')
    status, said, complaints = config.push()
    assert (status, said) == (WRONG, "")
    assert f"{config.file}:8: limmits" in complaints
    assert f"{config.file}:11: topics" in complaints
    config.written(FIRST)
    assert config.pulled() == good
    assert config.push("--over", "1") == (0, "version 1\n", "")


def test_a_push_over_a_version_that_is_not_there_any_more_is_refused(config: Config) -> None:
    config.written(FIRST)
    assert config.push("--over", "1")[0] != 0
    assert config.push("--over", "0") == (0, "version 1\n", "")
    second = config.written(SECOND)
    assert config.push("--over", "1") == (0, "version 2\n", "")
    config.written(FIRST)
    status, _, complaints = config.push("--over", "1")
    assert status == 1
    assert "version 2 is in ZooKeeper, not 1: pull and try again" in complaints
    assert config.pulled() == second


def test_diff_shows_the_lines_that_differ_and_nothing_where_none_does(config: Config) -> None:
    config.written(FIRST)
    status, said, _ = config.run("diff", str(config.file))
    assert status == DIFFERENT
    assert said.startswith("--- ZooKeeper, version 0\n")
    config.push()
    assert config.run("diff", str(config.file)) == (0, "", "")
    config.written(SECOND)
    status, said, _ = config.run("diff", str(config.file))
    assert status == DIFFERENT
    assert said.splitlines()[:2] == ["--- ZooKeeper, version 1", f"+++ {config.file}"]
    assert [line for line in said.splitlines()[2:] if line[0] in "+-"] == ['-queue = "2MiB"', '+queue = "3MiB"']


def test_where_nothing_has_been_pushed_there_is_nothing_to_pull(config: Config) -> None:
    config.written(FIRST)
    status, said, complaints = config.run("pull", str(config.file))
    assert (status, said) == (NOTHING_THERE, "")
    assert "nothing has been pushed" in complaints
