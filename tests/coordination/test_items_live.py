"""Real brokers of one domain with items: agents, directory, drained brokers, and clients that follow the directory."""

import asyncio
import json
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from services import has_zookeeper
from typer.testing import CliRunner

import overlane.client
from overlane.cli.main import app
from overlane.client.items import ItemClient
from waiting import eventually, eventually_async

if TYPE_CHECKING:
    from _tiers import Tiers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("zookeeper"),
    pytest.mark.usefixtures("bench_folder"),
    pytest.mark.skipif(not has_zookeeper(), reason="no Java, or no ZooKeeper"),
]

PATIENCE_S = 90.0
EDGES = ("west-1", "west-2", "west-3")
CONFIG = """
[security]
overlay_open = true
[limits]
session_expiry_max = "none"
[placement]
capacity = 2000
[items.tolls]
topics = ["tolls/#"]
critical = true
[items.sensors]
topics = ["sensors/#"]
[items.signs]
topics = ["signs/#"]
"""


@pytest.fixture(scope="module")
def tiers(tmp_path_factory: pytest.TempPathFactory, bench_folder: None) -> "Iterator[Tiers]":  # noqa: ARG001
    from _tiers import Ensemble, Tiers

    folder = tmp_path_factory.mktemp("items")
    ensemble = Ensemble(folder / "zookeeper", servers=1)
    ensemble.start()
    made = Tiers(folder, ensemble, "/items-live")
    try:
        asyncio.run(made.push(folder, CONFIG))
        for edge in EDGES:
            made.add(edge, "edge", "west")
        eventually(lambda: all(is_normal(made, edge) for edge in EDGES), "items are placed", PATIENCE_S, made.logs)
        yield made
    finally:
        made.end()
        ensemble.stop()


def directory(tiers: "Tiers", edge: str, topic: str = "") -> dict[str, object]:
    asked = f"?topic={quote(topic)}" if topic else ""
    with urlopen(f"http://127.0.0.1:{tiers.brokers[edge].ports[2]}/directory{asked}", timeout=PATIENCE_S) as answer:
        found: dict[str, object] = json.load(answer)
    return found


def is_normal(tiers: "Tiers", edge: str) -> bool:
    """All three are there, and carry something."""
    try:
        found = directory(tiers, edge)
    except OSError:
        return False
    return found["state"] == "normal" and len({place[0] for place in placed(found).values()}) == 3


def placed(view: dict[str, object]) -> dict[str, tuple[str, str]]:
    items = view["items"]
    assert isinstance(items, list)
    return {one["item"]: (one["primary"], one["mirror"]) for one in items}


def addresses(tiers: "Tiers") -> list[str]:
    return [tiers.brokers[edge].mqtt for edge in EDGES]


def follower(tiers: "Tiers", client_id: str) -> ItemClient:
    made = overlane.client.connect(addresses(tiers), client_id=client_id, session_expiry="1h", directory=True)
    assert isinstance(made, ItemClient)
    return made


def test_every_broker_knows_the_same_directory(tiers: "Tiers") -> None:
    views = [directory(tiers, edge) for edge in EDGES]
    assert len({json.dumps(placed(view)) for view in views}) == 1
    one = directory(tiers, "west-1", "tolls/7")
    assert list(placed(one)) == ["tolls"]
    with pytest.raises(HTTPError, match="404"):
        directory(tiers, "west-1", "rail/7")
    admin = f"127.0.0.1:{tiers.brokers['west-1'].ports[2]}"
    shown = CliRunner().invoke(app, ["directory", admin, "--json"])
    assert shown.exit_code == 0, shown.output
    assert "tolls/#" in shown.output

    async def read() -> dict[str, dict[str, object]]:
        found = {}
        async with (
            overlane.client.connect(tiers.brokers["west-2"].mqtt) as client,
            client.subscribe("$overlane/directory/#") as entries,
        ):
            async for message in entries:
                entry = json.loads(message.body)
                found[entry["item"]] = entry
                if len(found) == 3:
                    return found
        raise AssertionError

    entries = asyncio.run(asyncio.wait_for(read(), PATIENCE_S))
    primary = entries["tolls"]["primary"]
    assert isinstance(primary, dict)
    assert primary["broker"] == placed(views[0])["tolls"][0]
    assert primary["clients"]["mqtt"] == tiers.brokers[primary["broker"]].mqtt


def test_a_drained_broker_carries_nothing_until_it_is_undrained(tiers: "Tiers") -> None:
    where = ["--zookeeper", tiers.ensemble.addresses, "--path", tiers.path, "--within", "60"]
    drained = CliRunner().invoke(app, ["drain", "west-3", *where])
    assert "west-3 carries 0 items" in drained.output, drained.output + tiers.logs()
    eventually(lambda: "west-3" not in str(placed(directory(tiers, "west-1"))), "others carry all", PATIENCE_S)
    back = CliRunner().invoke(app, ["undrain", "west-3", *where])
    assert back.exit_code == 0, back.output
    eventually(lambda: is_normal(tiers, "west-2"), "all carry something", PATIENCE_S, tiers.logs)
    unknown = CliRunner().invoke(app, ["drain", "nowhere", *where])
    assert unknown.exit_code == 2
    assert "nowhere" in unknown.output


@pytest.mark.parametrize(("topic", "how"), [("tolls/1", signal.SIGKILL), ("sensors/1", signal.SIGSTOP)])
def test_a_lost_primary_loses_nothing_and_nothing_comes_twice(tiers: "Tiers", topic: str, how: signal.Signals) -> None:
    async def run() -> None:
        async with follower(tiers, f"sub-{how.name}") as sub, follower(tiers, f"pub-{how.name}") as pub:
            await eventually_async(lambda: len(pub.directory.entries) == len(sub.directory.entries) == 3, "directory")
            entry = pub.directory.find(topic)
            assert entry is not None
            async with sub.subscribe(topic, qos=1) as messages:
                await pub.publish(topic, "0", qos=1)
                got = [(await anext(messages)).text]
                reading = asyncio.create_task(_read(messages, got))
                both = {at.broker for at in entry.brokers}
                await eventually_async(lambda: both <= set(pub.online_brokers) & set(sub.online_brokers), "sessions")
                victim = tiers.brokers[entry.primary.broker]
                for number in range(1, 150):
                    if number == 50:
                        victim.signal(how)
                    await asyncio.wait_for(pub.publish(topic, str(number), qos=1), PATIENCE_S)
                expected = [str(number) for number in range(150)]
                await eventually_async(lambda: len(got) >= 150, "all arrive", PATIENCE_S)
                assert pub.brokers_of(topic)[0] != entry.primary.broker
                assert sorted(got, key=int) == expected
                if how is signal.SIGSTOP:
                    victim.signal(signal.SIGCONT)
                else:
                    tiers.start(victim)
                # The one that was lost too: others turn clients away as long as it may have their sessions.
                await asyncio.to_thread(
                    eventually, lambda: all(is_normal(tiers, edge) for edge in EDGES), "normal", PATIENCE_S, tiers.logs
                )
                assert sorted(got, key=int) == expected
                reading.cancel()

    asyncio.run(run())


async def _read(messages: overlane.client.Subscription, got: list[str]) -> None:
    async for message in messages:
        got.append(message.text)
