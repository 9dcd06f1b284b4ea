"""Real brokers of two domains: a deadline that the routing tier cannot meet makes their edges open a direct link."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from services import has_zookeeper

import overlane.client as overlane_client

if TYPE_CHECKING:
    from _tiers import Tiers

CONFIG = """
[topics."urgent/#"]
deadline = "0.01ms"
[routing]
brokers_min = 1
brokers_max = 1
"""
"""No path of two links meets it, on whatever machine."""
OPEN_S = 120

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("zookeeper"),
    pytest.mark.usefixtures("bench_folder"),
    pytest.mark.skipif(not has_zookeeper(), reason="no Java, or no ZooKeeper"),
]


def test_edges_of_two_domains_open_a_direct_link_for_a_deadline(tmp_path: Path) -> None:
    from _tiers import Ensemble, Tiers

    ensemble = Ensemble(tmp_path / "zookeeper", servers=1)
    ensemble.start()
    tiers = Tiers(tmp_path, ensemble, "/direct")
    try:
        asyncio.run(tiers.push(tmp_path, CONFIG))
        for name, role, domain in (("r", "routing", "core"), ("west-1", "edge", "west"), ("east-1", "edge", "east")):
            tiers.add(name, role, domain)
        asyncio.run(_publish_until_linked(tiers))
    finally:
        tiers.end()
        ensemble.stop()


async def _publish_until_linked(tiers: "Tiers") -> None:
    await tiers.ready()
    log = tiers.folder / "west-1.log"
    west, east = (tiers.brokers[name].mqtt for name in ("west-1", "east-1"))
    async with (
        overlane_client.connect(east) as reader,
        overlane_client.connect(west) as writer,
        reader.subscribe("urgent/#"),
        asyncio.timeout(OPEN_S),
    ):
        while "link to east-1 is up" not in log.read_text():
            await writer.publish("urgent/hall/fire", "now", qos=0)
            await asyncio.sleep(0.05)
    assert "wanted direct links: east-1" in log.read_text()
