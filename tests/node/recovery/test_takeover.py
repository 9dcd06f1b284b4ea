"""Real brokers, real ZooKeeper servers: a host is lost for good, and another continues its broker."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from client_state import At, ClientState

from overlane.coordination.ensemble.java import java_command, server_jars
from overlane.errors import Unavailable
from overlane.testbed.certificates import Authority
from waiting import eventually_async

if TYPE_CHECKING:
    from _domain import Domain, Load
    from _tiers import Ensemble


def has_zookeeper() -> bool:
    try:
        java_command()
        server_jars()
    except Unavailable:
        return False
    return True


pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("zookeeper"),
    pytest.mark.usefixtures("bench_folder"),
    pytest.mark.skipif(not has_zookeeper(), reason="no Java, or no ZooKeeper"),
]

Story = Callable[["Domain", "Load"], Awaitable[None]]


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory, bench_folder: None) -> "Iterator[Ensemble]":  # noqa: ARG001
    from _tiers import Ensemble

    made = Ensemble(tmp_path_factory.mktemp("zookeeper") / "servers")
    made.start()
    yield made
    made.stop()


def run(
    folder: Path,
    ensemble: "Ensemble",
    path: str,
    story: Story,
    silence: str = "5s",
    more: str = "",
    directories: dict[str, Path] | None = None,
) -> "Load":
    """Two hosts with a mirror of each other, and a load on the first. What was acknowledged has to arrive."""
    from _domain import Forwarder, Load, domain

    async def go(made: "Domain") -> "Load":
        for name, other in (("west-1", "west-2"), ("west-2", "west-1")):
            found = await made.until_set(name, name, 1)
            assert {copy.host for copy in found.in_sync} == {name, other}
        async with Forwarder(made, "west-1").running() as address, Load(address).running() as load:
            await story(made, load)
        return load

    names = ("west-1", "west-2")
    with domain(folder, ensemble, names, path=path, silence=silence, more=more, directories=directories) as made:
        load = asyncio.run(go(made))
        assert load.lost() == {}, made.logs()
        assert load.twice(2) == 0, made.logs()
    return load


def test_a_broker_outlives_two_hosts_that_are_lost_with_their_disks_one_after_the_other(
    tmp_path: Path, ensemble: "Ensemble"
) -> None:
    async def story(made: "Domain", load: "Load") -> None:
        made.lose("west-1")
        await made.until_set("west-1", "west-2", 0)
        await load.until_more()
        # The host comes back empty. It is a mirror of its own broker now, and says so.
        made.start("west-1")
        await made.until_set("west-1", "west-2", 1)
        await made.until_set("west-2", "west-2", 1)
        await asyncio.to_thread(assert_waiting, made)
        made.lose("west-2")
        await made.until_set("west-1", "west-1", 0)
        await made.until_set("west-2", "west-1", 0)
        await load.until_more()

    run(tmp_path, ensemble, "/lost", story)


def assert_waiting(made: "Domain") -> None:
    from waiting import eventually

    def not_ready() -> list[str] | None:
        try:
            urlopen(f"http://127.0.0.1:{made.hosts['west-1'].ports[2]}/ready", timeout=30)
        except HTTPError as error:
            reasons: list[str] = json.loads(error.read())["reasons"]
            return reasons
        except OSError:
            return None
        return None

    assert eventually(not_ready, "its admin API answers", 60) == ["west-2 serves this broker; this host has a copy"]


SECURE = """
[security]
certificate = "host.pem"
key = "host.key"
client_ca = "ca.pem"
overlay_tls = true
"""


def certificates(folder: Path, named: dict[str, tuple[str, ...]]) -> dict[str, Path]:
    """A working directory for each host, with a certificate that names it and the brokers that it may continue."""
    authority = Authority(folder, "ca")
    directories = {}
    for name, others in named.items():
        made = directories[name] = folder / f"{name}-home"
        made.mkdir()
        shown = authority.broker(name, others)
        shown.certificate.rename(made / "host.pem")
        shown.key.rename(made / "host.key")
        (made / "ca.pem").write_bytes(authority.ca.read_bytes())
    return directories


def test_with_certificates_a_broker_outlives_its_host_and_its_neighbour_knows_it_again(
    tmp_path: Path, ensemble: "Ensemble"
) -> None:
    """The third host has no copies: its certificate names itself alone. It is a neighbour of the others."""
    directories = certificates(tmp_path, {"west-1": ("west-2",), "west-2": ("west-1",), "west-3": ()})

    async def story(made: "Domain", load: "Load") -> None:
        made.add("west-3")
        await made.until_host("west-3")
        neighbour = made.folder / "west-3.log"
        await eventually_async(lambda: neighbour.read_text().count("link to west-1 is up") == 1, "they are linked", 60)
        made.lose("west-1")
        assert {copy.host for copy in (await made.until_set("west-1", "west-2", 0)).in_sync} == {"west-2"}
        await load.until_more()
        await eventually_async(lambda: neighbour.read_text().count("link to west-1 is up") > 1, "again", 60)
        made.start("west-1")
        await made.until_set("west-1", "west-2", 1)
        await load.until_more()

    run(tmp_path, ensemble, "/certified", story, more=SECURE, directories=directories)


def test_an_operator_moves_a_broker_away_and_back_and_a_silent_host_is_replaced(
    tmp_path: Path, ensemble: "Ensemble"
) -> None:
    async def story(made: "Domain", load: "Load") -> None:
        where = ("--zookeeper", ensemble.addresses, "--path", made.path)
        for host, other in (("west-2", "west-1"), ("west-1", "west-2")):
            moved = await asyncio.to_thread(overlane, "recovery", "move", "west-1", host, *where)
            assert f"west-1 runs at {host}" in moved.stdout, moved.stderr
            await load.until_more()
            await made.until_set("west-1", host, 1)
            await asyncio.to_thread(assert_shown, where, host, other)
        wrong = await asyncio.to_thread(overlane, "recovery", "move", "west-1", "nowhere", *where)
        assert (wrong.returncode, "allowed is one of west-1, west-2" in wrong.stderr) == (2, True), wrong.stderr
        # It is silent, and gives way when it wakes up.
        made.signal("west-1", signal.SIGSTOP)
        await made.until_set("west-1", "west-2", 0)
        await load.until_more()
        made.signal("west-1", signal.SIGCONT)
        await made.until_set("west-1", "west-2", 1)
        await load.until_more()

    run(tmp_path, ensemble, "/moved", story, silence="3s")


NAMED = """
[recovery.brokers.west-1]
hosts = ["spare-1", "spare-2"]
"""


def test_all_that_a_broker_keeps_for_clients_outlives_its_host_and_the_host_that_took_over(
    tmp_path: Path, ensemble: "Ensemble"
) -> None:
    from _domain import domain

    state = ClientState()

    async def go(made: "Domain") -> None:
        for name in ("spare-1", "spare-2"):
            made.add(name, "backup")
        await made.until_host("spare-1")  # a copy stays where it is
        made.add("west-1")
        at = At(made.hosts["west-1"].ports[0], f"127.0.0.1:{made.hosts['west-1'].ports[2]}")
        for host, successor in (("west-1", "spare-1"), ("spare-1", "spare-2")):
            before = await made.until_set("west-1", host, 1)
            assert {copy.host for copy in before.mirrors} == {successor}
            await asyncio.to_thread(state.prepare, at)
            made.lose(host)
            await made.until_set("west-1", successor, 0)
            port = int((await made.address("west-1", before.epoch + 1)).rpartition(":")[2])
            at = At(port, await asyncio.to_thread(admin_of, made, successor))
            await asyncio.to_thread(state.look, at)

    with domain(tmp_path, ensemble, (), path="/kept", more=NAMED) as made:
        asyncio.run(go(made))


def admin_of(made: "Domain", host: str) -> str:
    """Of west-1, where this host has continued it."""
    from waiting import eventually

    def shown() -> str | None:
        lines = (made.folder / f"{host}.log").read_text().splitlines()
        return next((one.split()[-1] for one in lines if one.startswith("hosted  west-1")), None)

    found: str = eventually(shown, "the host tells where the broker is", 60)
    return found


RANKED = """
on_takeover = "sh -c 'env > taken'"

[recovery.scoring]
cpu = 0
memory = 0
bandwidth = 0
battery = 0
command = "cat score"
"""


def test_the_best_scored_host_continues_a_broker_and_tells_so_and_a_broker_that_was_forgotten_begins_anew(
    tmp_path: Path, ensemble: "Ensemble"
) -> None:
    from _domain import domain

    scores = {"west-1": 1.0, "spare-1": 0.2, "spare-2": 0.9}
    directories = {name: tmp_path / f"{name}-home" for name in scores}
    for name, made_in in directories.items():
        made_in.mkdir()
        (made_in / "score").write_text(str(scores[name]))

    async def go(made: "Domain") -> None:
        for name, score in scores.items():
            made.add(name, "edge" if name == "west-1" else "backup")
            await made.until_host(name, score)
        before = await made.until_set("west-1", "west-1", 2)
        made.lose("west-1")
        after = await made.until_set("west-1", "spare-2", 1)
        assert {copy.host for copy in after.in_sync} == {"spare-1", "spare-2"}
        address = await made.address("west-1", before.epoch + 1)
        taken = directories["spare-2"] / "taken"
        await eventually_async(lambda: taken.exists() and "OVERLANE_OVERLAY" in taken.read_text(), "it is told", 60)
        told = dict(line.split("=", 1) for line in taken.read_text().splitlines() if line.startswith("OVERLANE_"))
        expected = ("west-1", "spare-2", "west-1", address)
        found = tuple(told[f"OVERLANE_{name}"] for name in ("BROKER", "HOST", "FORMER_HOST", "MQTT"))
        assert found == expected
        assert not (directories["spare-1"] / "taken").exists()
        where = ("--zookeeper", ensemble.addresses, "--path", made.path)
        forgotten = await asyncio.to_thread(overlane, "recovery", "forget", "west-1", "--yes", *where)
        assert forgotten.returncode == 0, forgotten.stderr
        made.start("west-1")
        anew = await made.until_set("west-1", "west-1", 2)
        assert anew.epoch > after.epoch
        refused = await asyncio.to_thread(overlane, "recovery", "forget", "west-1", "--yes", *where)
        assert (refused.returncode, "stop west-1 first" in refused.stderr) == (2, True), refused.stderr

    with domain(tmp_path, ensemble, (), path="/ranked", mirrors=2, more=RANKED, directories=directories) as made:
        asyncio.run(go(made))


def assert_shown(where: tuple[str, ...], host: str, other: str) -> None:
    """Where the broker is, and its mirror with its lag: the former host has to start again first."""
    from waiting import eventually

    def shown() -> bool:
        rows = json.loads(overlane("recovery", "--json", *where).stdout)["items"]
        (row,) = [one for one in rows if one["broker"] == "west-1"]
        mirrors = [(one["host"], one["in_sync"], one["lag_bytes"] is not None) for one in row["mirrors"]]
        return (row["host"], row["domain"], mirrors) == (host, "west", [(other, True, True)])

    eventually(shown, "it is shown with its mirror", 90)


def overlane(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "overlane", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
