"""Two processes under one broker's name: who is there keeps its place, everybody concerned is told."""

import asyncio
from pathlib import Path

import pytest

from overlane.client import Client, connect
from overlays import Member, RealOverlay

pytestmark = pytest.mark.slow

LINKS = dict.fromkeys(("a-b", "b-c"), 'latency = "1ms"')
SAID = "another broker runs under the name c"


def conflicts(member: Member) -> int:
    answer = member.ask("/status")
    assert isinstance(answer, dict)
    return int(answer["overlay"]["name_conflicts"])


def namesake(net: RealOverlay, directory: Path) -> Member:
    """Another process that is told to be c, with data and addresses of its own, perhaps a copied configuration."""
    directory.mkdir()
    file = directory / "network.toml"
    twin = Member(file, "c", directory, ())
    text = net.file.read_text()
    for own, other in ((net["c"].mqtt, twin.mqtt), (net["c"].overlay, twin.overlay), (net["c"].admin, twin.admin)):
        text = text.replace(own, other)
    file.write_text(text)
    return twin


def wait_for_report(net: RealOverlay, member: Member) -> None:
    net.wait_until(lambda: SAID in member.log.read_text(), "a report")
    assert conflicts(member) > 0
    answer = member.ask("/events")
    assert isinstance(answer, dict)
    (event, *_) = [one for one in answer["items"] if one["kind"] == "name-conflict"]
    assert event["peer"] == "c"
    assert event["cause"]


async def first_stays(net: RealOverlay, twin: Member) -> None:
    async with connect(net["a"].mqtt) as here, connect(net["c"].mqtt) as there, connect(twin.mqtt) as elsewhere:
        got: dict[str, list[bytes]] = {"there": [], "elsewhere": []}

        async def read(name: str, client: Client) -> None:
            async for message in client.subscribe("t"):
                got[name].append(bytes(message.body))

        reading = [asyncio.create_task(read(*one)) for one in (("there", there), ("elsewhere", elsewhere))]

        async with asyncio.timeout(30):
            while len(got["there"]) < 5:
                await here.publish("t", b"x", qos=1)
                await asyncio.sleep(0.1)
        assert got["elsewhere"] == []
        for task in reading:
            task.cancel()


def test_a_second_broker_of_the_same_name_is_refused_and_reported_until_the_first_is_gone(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, LINKS)
    twin = namesake(net, tmp_path / "twin")
    try:
        net.start()
        twin.start()
        for member in (net["b"], net["c"], twin):
            wait_for_report(net, member)
        asyncio.run(first_stays(net, twin))
        assert net["b"].log.read_text().count(SAID) < 5
        assert "restarting as incarnation" not in twin.log.read_text() + net["c"].log.read_text()
        net["c"].kill()
        net.wait_until(lambda: "link to b is up" in twin.log.read_text(), "the second in its place")
        assert "Traceback" not in net.logs() + twin.log.read_text()
    finally:
        twin.kill()
        net.end()
