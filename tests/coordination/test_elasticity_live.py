"""The routing tier grows and shrinks while it is in use: real brokers, a real launcher, real ZooKeeper."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from services import has_zookeeper

from overlane.coordination.client import coordination_client
from overlane.coordination.reading import read_overview
from overlane.coordination.zookeeper import Access
from overlane.local_ports import free_row
from waiting import eventually

if TYPE_CHECKING:
    from _elastic import Watch
    from _tiers import Ensemble, Load, Tiers

PEAK_IN_S = 600
START_S = 60.0
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


def test_a_plan_that_expects_more_load_starts_a_routing_broker_before_it_comes(
    tmp_path: Path, ensemble: "Ensemble"
) -> None:
    from _elastic import Watch, elastic_overlay
    from _tiers import Load

    now_s = int(time.time())
    peak = {"start_s": now_s + PEAK_IN_S - 3_600, "rates": [100.0, 400.0]}
    (tmp_path / "plan.json").write_text(json.dumps({"made_ns": now_s * 10**9, "load": peak}))
    # The present load alone is never enough. Four times as much is, also if a busy machine lets through a part only.
    with elastic_overlay(tmp_path, ensemble, "/expected", grow_above=1.0) as tiers:
        load = Load(tiers, 4)
        why = asyncio.run(_expected(tmp_path, tiers, load, Watch(tiers)))
    assert "4.0 times as much is expected" in why
    assert_nothing_is_lost(load)


async def _expected(folder: Path, tiers: "Tiers", load: "Load", watch: "Watch") -> str:
    """Why there is a second routing broker in the end."""
    load.pad(1_000, 0.05)
    async with load.running():
        await watch.until(lambda now: now.wanted == now.carrying == 1 and now.load_max > 0.27, "one carries a part")
        apply = [
            sys.executable,
            "-m",
            "overlane",
            "plan",
            "apply",
            str(folder / "plan.json"),
            str(folder / "elastic.toml"),
        ]
        applied = await asyncio.create_subprocess_exec(*apply)
        assert await applied.wait() == 0
        await watch.until(lambda now: now.carrying == 2, "two carry")
        async with coordination_client(Access(tiers.ensemble.addresses, tiers.path), START_S) as session:
            wanted = (await read_overview(session)).wanted
        await load.until_all_arrive()
    assert wanted is not None
    return wanted.why


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
