"""Links and brokers come into the network file, change there and leave it, while the brokers run."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from brokers import free_port
from overlane.client import connect
from overlays import Member, RealOverlay, all_up, overlay

pytestmark = pytest.mark.slow


def link(one: str, other: str, lines: str = 'latency = "1ms"') -> str:
    return f'\n[[links]]\nends = ["{one}", "{other}"]\n{lines}\n'


def links(member: Member) -> dict[str, dict[str, object]]:
    answer = member.ask("/links")
    assert isinstance(answer, dict)
    return {one["peer"]: one for one in answer["items"]}


def is_up(member: Member, peer: str) -> bool:
    found = links(member).get(peer, {})
    return found.get("state") == "up" and found.get("latency_ms") is not None


async def retain(at: Member, topic: str, body: bytes) -> None:
    async with connect(at.mqtt) as client:
        await client.publish(topic, body, qos=1, retain=True)


async def first(at: Member, topic_filter: str) -> bytes:
    """What is retained, which may have to come from another broker first: who subscribes again gets it."""
    while True:
        async with connect(at.mqtt) as client:
            messages = aiter(client.subscribe(topic_filter))
            with suppress(TimeoutError):
                return bytes((await asyncio.wait_for(anext(messages), 2)).body)


def test_a_link_that_comes_into_the_file_is_made_and_one_that_leaves_it_is_cut(tmp_path: Path) -> None:
    with overlay(tmp_path, {"a-b": 'latency = "1ms"'}) as net:
        alone = Member(net.file, "c", tmp_path, ())
        net.members["c"] = alone
        with_c = net.file.read_text() + alone.table()
        alone_file = tmp_path / "alone.toml"
        alone_file.write_text(alone.table())
        alone.use(alone_file)
        alone.start()
        net.wait_until(lambda: "linked" in alone.log.read_text(), "there")
        asyncio.run(retain(alone, "kept", b"from before it had company"))
        # c gets to know of the others, and the others of c
        for file in (alone_file, net.file):
            file.write_text(with_c + link("b", "c"))
        for member in net.members.values():
            member.reload()
        net.wait_until(lambda: is_up(net["b"], "c") and is_up(alone, "b"), "linked")
        assert asyncio.run(asyncio.wait_for(first(net["a"], "kept"), 30)) == b"from before it had company"
        net.file.write_text(with_c)
        net["b"].reload()
        net.wait_until(lambda: "c" not in links(net["b"]), "parted")
        net.wait_until(lambda: links(alone)["b"]["state"] != "up", "cut")
        assert is_up(net["b"], "a")
        assert "lost" not in net["a"].log.read_text()


def test_a_link_that_changes_in_the_file_is_as_it_says_and_is_not_dropped(tmp_path: Path) -> None:
    with overlay(tmp_path, {"a-b": 'latency = "1ms"\nemulate = true'}) as net:
        net.wait_until(lambda: is_up(net["a"], "b"), "measured")
        net.file.write_text(net.file.read_text().replace('"1ms"', '"70ms"'))
        for member in net.members.values():
            member.reload()

        def latency_ms() -> float:
            found = links(net["a"])["b"]["latency_ms"]
            return float(found) if isinstance(found, int | float) else 0.0

        net.wait_until(lambda: latency_ms() > 50, "slow")
        net.file.write_text(net.file.read_text().replace("emulate = true", ""))
        for member in net.members.values():
            member.reload()
        net.wait_until(lambda: latency_ms() < 50, "quick")
        assert "lost" not in net["a"].log.read_text() + net["b"].log.read_text()


def test_brokers_come_and_go_with_the_file_of_overlane_up(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"'})
    fresh = Member(net.file, "c", tmp_path, ())
    before = net.file.read_text()
    with all_up(net.file, tmp_path) as up:
        net.file.write_text(before + fresh.table() + link("b", "c"))
        up.reload()
        up.wait_until(lambda: "c" in links(net["b"]), "told of c")
        up.wait_until(lambda: is_up(net["b"], "c"), "linked with c")
        asyncio.run(retain(net["a"], "kept", b"x"))
        assert asyncio.run(asyncio.wait_for(first(fresh, "kept"), 30)) == b"x"
        net.file.write_text("brokers = 7")
        up.reload()
        up.wait_until(lambda: "configuration unchanged" in up.log.read_text(), "refused")
        net.file.write_text(before)
        up.reload()
        up.wait_until(lambda: "c  has left" in up.log.read_text(), "rid of c")
        up.wait_until(lambda: "c" not in links(net["b"]), "without a link to c")
        assert is_up(net["b"], "a")
    assert up.process.returncode == 0
    assert "Traceback" not in up.log.read_text()


def test_a_neighbour_that_moves_in_the_file_is_dialled_where_it_is_now(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"'})
    # Only a dials, so that the connection leads to the address of b.
    before = net.file.read_text().replace("[brokers.a]", "[brokers.a]\nreach = []")
    net.file.write_text(before)
    net.start()
    try:
        new = f"127.0.0.1:{free_port()}"
        net.file.write_text(before.replace(net["b"].overlay, new))
        net["a"].reload()
        net.wait_until(lambda: f"cannot reach b at {new}" in net["a"].log.read_text(), "looking for b there")
        assert is_up(net["a"], "b")
        net["b"].kill()
        net["b"].start()
        net.wait_until(lambda: is_up(net["a"], "b") and is_up(net["b"], "a"), "linked again")
    finally:
        net.end()
