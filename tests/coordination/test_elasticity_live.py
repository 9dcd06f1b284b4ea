"""The routing tier grows and shrinks while it is in use: real brokers, a real launcher, real ZooKeeper."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from services import has_zookeeper

from overlane.local_ports import free_row
from waiting import eventually

if TYPE_CHECKING:
    from _tiers import Ensemble, Load, Tiers

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("zookeeper"),
    pytest.mark.usefixtures("bench_folder"),
    pytest.mark.skipif(not has_zookeeper(), reason="no Java, or no ZooKeeper"),
]


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory, bench_folder: None) -> "Iterator[Ensemble]":  # noqa: ARG001
    from _tiers import Ensemble

    made = Ensemble(tmp_path_factory.mktemp("zookeeper") / "servers", servers=1)
    made.start()
    yield made
    made.stop()


def assert_nothing_is_lost(load: "Load") -> None:
    assert {stream.topic: stream.lost() for stream in load.streams if stream.lost()} == {}
    assert [stream.twice() for stream in load.streams] == len(load.streams) * [0]
    assert all(len(stream.acknowledged) > 20 for stream in load.streams)


def test_overlane_up_runs_another_routing_broker_while_the_load_is_high_and_nothing_is_lost(
    tmp_path: Path, ensemble: "Ensemble"
) -> None:
    from _elastic import Watch, elastic_overlay, grow_and_shrink
    from _tiers import Load

    with elastic_overlay(tmp_path, ensemble, "/elastic") as tiers:
        load, watch = Load(tiers, 4), Watch(tiers)
        print(asyncio.run(grow_and_shrink(load, watch, brokers_max=2)))
    assert_nothing_is_lost(load)
    assert watch.changes() == [(1, 2), (2, 1)]


def test_the_leaders_command_starts_and_ends_routing_brokers_and_nothing_is_lost(
    tmp_path: Path, ensemble: "Ensemble", monkeypatch: pytest.MonkeyPatch
) -> None:
    from _tiers import Load, Tiers

    overlane = tmp_path / "overlane"
    overlane.write_text(f'#!/bin/sh\nexec {sys.executable} -m overlane "$@" --no-sync\n')
    overlane.chmod(0o700)
    monkeypatch.setenv("OVERLANE", str(overlane))
    scale = [str(EXAMPLES / "scale-routing.sh"), ensemble.addresses, "/command", str(tmp_path / "routing")]
    scale += [str(free_row(6))]
    tiers = Tiers(tmp_path, ensemble, "/command")
    try:
        asyncio.run(tiers.push(tmp_path, _config(scale, 1)))
        subprocess.run([*scale, "1"], check=True)  # the first one, by hand
        tiers.add("west-1", "edge", "west")
        tiers.add("east-1", "edge", "east")
        load = Load(tiers, 4)
        asyncio.run(_scaled_by_config(tiers, load, scale))
    finally:
        tiers.end()
        eventually(lambda: _has_ended(scale, tmp_path / "routing"), "all routing brokers have ended", 120)
    assert_nothing_is_lost(load)
    assert "ready  routing-2" in (tmp_path / "routing" / "routing-2.log").read_text()


def _has_ended(scale: list[str], folder: Path) -> bool:
    """Whether no routing broker and no command of a leader runs. A leader that ends may have begun to start another."""
    subprocess.run([*scale, "0"], check=True)
    commands = [_words_of(process) for process in Path("/proc").iterdir() if process.name.isdigit()]
    return not any(str(folder) in words for words in commands)


def _words_of(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""  # it has ended


def _config(scale: list[str], brokers: int) -> str:
    words = ", ".join(f'"{word}"' for word in scale)
    return (
        f'[routing]\nbrokers_min = {brokers}\nbrokers_max = {brokers}\nlauncher = "command"\ncommand = [{words}]\n'
        '[topics."load/#"]\nreliability = "reliable"\n'
    )


async def _scaled_by_config(tiers: "Tiers", load: "Load", scale: list[str]) -> None:
    from _elastic import Watch

    watch = Watch(tiers)
    await tiers.ready()
    async with load.running():
        for brokers in (2, 1):
            await tiers.push(tiers.folder, _config(scale, brokers))
            await watch.until(lambda now, count=brokers: now.carrying == count, f"{brokers} carry")  # type: ignore[misc]
            await load.until_all_arrive()
