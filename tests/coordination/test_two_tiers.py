"""Real brokers, real ZooKeeper servers: what users do, and what they see when something fails."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from services import has_zookeeper

import overlane.client as overlane_client
from overlane.coordination.client import coordination_client
from overlane.coordination.contract import Done, Replace
from overlane.coordination.records import ConfigRecord, encode
from overlane.coordination.zookeeper import Access
from overlane.local_ports import free_ports
from overlane.network.reading import read_network
from waiting import eventually

if TYPE_CHECKING:
    from _tiers import Ensemble, Load, Tiers

OVERLANE = [sys.executable, "-m", "overlane"]

pytestmark = [
    pytest.mark.xdist_group("zookeeper"),
    pytest.mark.usefixtures("bench_folder"),
    pytest.mark.skipif(not has_zookeeper(), reason="no Java, or no ZooKeeper"),
]


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory, bench_folder: None) -> "Iterator[Ensemble]":  # noqa: ARG001
    from _tiers import Ensemble

    made = Ensemble(tmp_path_factory.mktemp("zookeeper") / "servers")
    made.start()
    yield made
    made.stop()


@pytest.mark.slow
def test_killed_routing_brokers_and_a_lost_zookeeper_cost_no_acknowledged_message(
    tmp_path: Path, ensemble: "Ensemble"
) -> None:
    from _tiers import Load, two_tiers

    with two_tiers(tmp_path, ensemble, routing=3, edges=2, path="/faults") as tiers:
        load = Load(tiers, 6)
        asyncio.run(_faults(tiers, load))
        assert {stream.topic: stream.lost() for stream in load.streams if stream.lost()} == {}, tiers.logs()
        assert [stream.twice() for stream in load.streams] == 6 * [0]
        assert all(len(stream.acknowledged) > 50 for stream in load.streams)


@pytest.mark.slow
def test_brokers_that_started_before_the_first_push_restart_for_the_security_of_their_links(
    tmp_path: Path, ensemble: "Ensemble"
) -> None:
    from _tiers import Tiers

    secret, pushed = tmp_path / "secret", tmp_path / "pushed.toml"
    secret.write_text("too short")
    secret.chmod(0o600)
    pushed.write_text(f'[security]\noverlay_secret = "{secret}"\n')
    where = ["--zookeeper", ensemble.addresses, "--path", "/secured"]
    tiers = Tiers(tmp_path, ensemble, "/secured")

    def times(text: str) -> int:
        return tiers.logs(1_000).count(text)

    try:
        for name, role, domain in (("r-1", "routing", "hub"), ("w-1", "edge", "west"), ("e-1", "edge", "east")):
            tiers.add(name, role, domain)
        eventually(lambda: times("ready  ") == 3, "they serve", 60, tiers.logs)
        assert overlane("config", "push", str(pushed), *where).stdout == "version 1\n"
        eventually(lambda: times("configuration unchanged: ") == 3, "nobody can start with that", 60, tiers.logs)
        secret.write_text("a-secret-of-brokers-that-nobody-else-knows")
        pushed.write_text(pushed.read_text() + "# once more\n")
        assert overlane("config", "push", str(pushed), *where).stdout == "version 2\n"
        restarting = "restarting for the first configuration that was pushed: security of links"
        eventually(lambda: times(restarting) == 3 and times("ready  ") == 6, "they restart", 60, tiers.logs)
        asyncio.run(_one_message(tiers.brokers["w-1"].mqtt, tiers.brokers["e-1"].mqtt))
        pushed.write_text("[security]\noverlay_open = true\n")
        assert overlane("config", "push", str(pushed), *where).stdout == "version 3\n"
        told = "changes that need a restart: security of links"
        eventually(lambda: times(told) == 3, "the next one is for people", 60, tiers.logs)
        assert times(restarting) == 3
    finally:
        tiers.end()


@pytest.mark.slow
def test_brokers_follow_a_push_and_a_wrong_one_changes_nothing(tmp_path: Path, ensemble: "Ensemble") -> None:
    from _tiers import Tiers

    where = ["--zookeeper", ensemble.addresses, "--path", "/config"]
    good, wrong = tmp_path / "good.toml", tmp_path / "wrong.toml"
    good.write_text('[limits]\nqueue = "2MiB"\n')
    wrong.write_text('[limits]\nqeue = "2MiB"\n')
    tiers = Tiers(tmp_path, ensemble, "/config")
    try:
        tiers.add("west-1", "edge", "west")
        eventually(lambda: "ready  west-1" in tiers.logs(), "it serves", 60, tiers.logs)
        refused = overlane("config", "push", str(wrong), *where)
        assert refused.returncode == 2
        assert "wrong.toml:2: limits.qeue: found an unknown field" in refused.stderr
        assert overlane("config", "push", str(good), *where).stdout == "version 1\n"
        eventually(lambda: "reloaded configuration in ZooKeeper" in tiers.logs(), "it follows", 60, tiers.logs)
        assert overlane("config", "pull", *where).stdout == good.read_text()
        assert overlane("config", "diff", str(good), *where).returncode == 0
        stale = overlane("config", "push", str(good), "--over", "7", *where)
        assert (stale.returncode, "version 1 is in ZooKeeper, not 7" in stale.stderr) == (1, True)
        asyncio.run(_overwrite(ensemble.addresses, encode(ConfigRecord(9, wrong.read_text()))))
        eventually(lambda: "configuration unchanged: configuration in ZooKeeper:2" in tiers.logs(), "", 60, tiers.logs)
        asyncio.run(_overwrite(ensemble.addresses, b"\xff not a record"))
        eventually(lambda: "znode /config was ignored" in tiers.logs(), "it is reported", 60, tiers.logs)
        # Its next life starts with what it has taken up last, and says why.
        tiers.kill(tiers.brokers["west-1"])
        tiers.start(tiers.brokers["west-1"])
        eventually(lambda: "continuing with configuration 1" in tiers.logs(), "it starts", 60, tiers.logs)
        (row,) = json.loads(overlane("brokers", "--json", *where).stdout)["items"]
        assert (row["name"], row["role"], row["domain"]) == ("west-1", "edge", "west")
    finally:
        tiers.end()


@pytest.mark.slow
def test_a_file_with_settings_of_its_own_holds_and_one_without_follows_a_push(
    tmp_path: Path, ensemble: "Ensemble"
) -> None:
    where = ["--zookeeper", ensemble.addresses, "--path", "/files"]
    pushed = tmp_path / "pushed.toml"
    pushed.write_text('[limits]\nqueue = "3MiB"\n')
    coordination = f'[coordination]\nzookeeper = "{ensemble.addresses}"\npath = "/files"\n'
    running: list[subprocess.Popen[bytes]] = []
    logs = {}
    try:
        for name, settings in (("follows", ""), ("holds", '[limits]\nqueue = "2MiB"\n')):
            ports = free_ports(3)
            at = "".join(f'{field} = "127.0.0.1:{ports.pop()}"\n' for field in ("mqtt", "overlay", "admin"))
            file, logs[name] = tmp_path / f"{name}.toml", tmp_path / f"{name}.log"
            file.write_text(f'{coordination}{settings}[brokers.{name}]\nrole = "edge"\ndomain = "west"\n{at}')
            words = ["broker", str(file), "--data", str(tmp_path / name), "--no-sync"]
            with logs[name].open("wb") as log:
                running.append(subprocess.Popen([*OVERLANE, *words], stdout=log, stderr=log))
        told = {name: path.read_text for name, path in logs.items()}
        for name in logs:
            eventually(partial(_is_serving, logs[name], name), f"{name} serves", 60, told[name])
        assert overlane("config", "push", str(pushed), *where).stdout == "version 1\n"
        reloaded, unchanged = "reloaded configuration in ZooKeeper", "configuration 1 in ZooKeeper is ignored"
        eventually(lambda: reloaded in told["follows"](), "it follows", 60, told["follows"])
        eventually(lambda: unchanged in told["holds"](), "it tells so", 60, told["holds"])
        assert reloaded not in told["holds"]()
        rows = {row["name"]: row["domain"] for row in _items(("brokers", "--json", *where))}
        assert rows == {"follows": "west", "holds": "west"}
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(60)


def _is_serving(log: Path, name: str) -> bool:
    return f"ready  {name}" in log.read_text()


async def _overwrite(addresses: str, data: bytes) -> None:
    async with coordination_client(Access(addresses, "/config")) as session:
        assert isinstance(await session.change(Replace("/config", data)), Done)


@pytest.mark.slow
def test_one_file_runs_zookeeper_and_two_tiers(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "examples" / "two-tiers.toml").read_text()
    ports = free_ports(15)
    for name in ("routing-1", "routing-2", "west-1", "west-2", "east-1"):
        at = {field: f"127.0.0.1:{ports.pop()}" for field in ("mqtt", "overlay", "admin")}
        lines = "".join(f'{field} = "{address}"\n' for field, address in at.items())
        text = text.replace(f"[brokers.{name}]\n", f"[brokers.{name}]\n{lines}")
    file, data = tmp_path / "two-tiers.toml", tmp_path / "data"
    file.write_text(text.replace('path = "', 'servers = 1\npath = "'))
    mqtt = {one.name: str(one.listeners["mqtt"]) for one in read_network(file).brokers}
    command = [*OVERLANE, "up", str(file), "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        try:
            assert up.stdout is not None
            assert any("ready" in line for line in up.stdout)
            look = ("brokers", str(file), "--data", str(data), "--json")
            names = {"routing-1", "routing-2", "west-1", "west-2", "east-1"}
            eventually(lambda: {row["name"] for row in _items(look)} == names, "all are registered", 60)
            asyncio.run(_one_message(mqtt["west-1"], mqtt["east-1"]))
            shown = ("assignments", str(file), "--data", str(data), "--json")
            routing = {"routing-1", "routing-2"}  # the later one gets its share with the leader's next decision
            eventually(lambda: {row["broker"] for row in _items(shown)} == routing, "both carry bundles", 60)
            assert len(_items(shown)) == 256
            assert_assignments_are_watched(file, data)
            assert_monitor_shows_the_leader(file)
        finally:
            up.terminate()
            up.wait(60)
    assert up.returncode == 0


def assert_assignments_are_watched(file: Path, data: Path) -> None:
    words = ["assignments", str(file), "--data", str(data), "--json", "--watch"]
    with subprocess.Popen([*OVERLANE, *words], stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        for _ in range(2):
            rows = json.loads(watch.stdout.readline())["items"]
            assert {row["standby"] for row in rows} == {"routing-1", "routing-2"}
            assert all(row["standby"] != row["broker"] for row in rows)
        watch.send_signal(signal.SIGINT)
        assert watch.wait(60) == 0


def assert_monitor_shows_the_leader(file: Path) -> None:
    at = f"127.0.0.1:{free_ports(1)[0]}"
    with subprocess.Popen([*OVERLANE, "monitor", str(file), "--at", at], stdout=subprocess.PIPE, text=True) as monitor:
        try:
            assert monitor.stdout is not None
            assert monitor.stdout.readline() == f"monitor  http://{at}/\n"
            with urlopen(f"http://{at}/api/stream", timeout=60) as stream:
                assert any(b'"is_leader":true' in line for line in stream)
        finally:
            monitor.terminate()
            monitor.wait(60)


async def _one_message(source: str, target: str) -> None:
    async with (
        overlane_client.connect(target) as reader,
        reader.subscribe("alarms/#", qos=1) as messages,
        overlane_client.connect(source) as writer,
    ):
        sending = asyncio.create_task(_send_until_read(writer))
        async with asyncio.timeout(60):
            async for message in messages:
                assert message.topic == "alarms/1"
                break
        sending.cancel()


async def _send_until_read(writer: overlane_client.Client) -> None:
    """Again and again: the two may not have found each other yet."""
    while True:
        await writer.publish("alarms/1", "fire", qos=1)
        await asyncio.sleep(0.2)


def _items(words: tuple[str, ...]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(overlane(*words).stdout)["items"]
    return found


def overlane(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OVERLANE, *words], capture_output=True, text=True, timeout=120, check=False)


async def _faults(tiers: "Tiers", load: "Load") -> None:
    async with load.running():
        for kind in ("worker", "leader"):
            found = await tiers.overview()
            others = sorted(
                name for name, one in found.brokers.items() if one.role == "routing" and name != found.leader
            )
            victim = tiers.brokers[others[0] if kind == "worker" else str(found.leader)]
            killed = time.monotonic()
            tiers.kill(victim)
            await load.until_all_arrive()
            await _assigned_to_the_living(tiers, victim.name)
            print(f"{kind}: longest gap {max(one.gap_s(killed - 1, time.monotonic()) for one in load.streams):.2f} s")
            tiers.start(victim)
            await tiers.ready()
        await asyncio.to_thread(tiers.ensemble.stop)
        await load.until_all_arrive()
        await asyncio.to_thread(tiers.ensemble.start)
        await tiers.ready()
        await load.until_all_arrive()


async def _assigned_to_the_living(tiers: "Tiers", gone: str) -> None:
    until = time.monotonic() + 60
    while any(one.broker == gone for one in (await tiers.overview()).assigned.values()):
        assert time.monotonic() < until, tiers.logs()
        await asyncio.sleep(0.1)
