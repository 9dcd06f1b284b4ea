"""Links are slowed, cut and healed, brokers come and go, while messages cross."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from overlane.client import connect
from overlays import Member, RealOverlay, overlay
from waiting import eventually_async

pytestmark = pytest.mark.slow

SQUARE = {
    "a-b": 'latency = "2ms"\nemulate = true',
    "b-d": 'latency = "2ms"\nemulate = true',
    "a-c": 'latency = "6ms"\nemulate = true',
    "c-d": 'latency = "6ms"\nemulate = true',
}
ALARMS = '[topics."alarms/#"]\ndeadline = "60ms"\n'


@pytest.fixture(scope="module")
def square(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOverlay]:
    with overlay(tmp_path_factory.mktemp("square"), SQUARE, ALARMS, ("--chaos",)) as net:
        yield net


def links(member: Member) -> dict[str, dict[str, object]]:
    answer = member.ask("/links")
    assert isinstance(answer, dict)
    return {one["peer"]: one for one in answer["items"]}


def path_of_alarms(net: RealOverlay) -> list[str]:
    """The way that alarms take from a to d, where it is one."""
    answer = net["a"].ask("/routes")
    assert isinstance(answer, dict)
    for route in answer["items"]:
        if route["deadline_ms"] == 60.0 and "d" in route["destinations"]:
            return list(route["paths"]["d"][0]) if len(route["paths"]["d"]) == 1 else ["several"]
    return []


def test_alarms_move_when_their_way_is_slow_or_cut_and_return_when_it_is_healed(square: RealOverlay) -> None:
    async def story() -> list[int]:
        got: list[int] = []
        async with connect(square["d"].mqtt) as there, connect(square["a"].mqtt) as here:
            messages = there.subscribe("alarms/#")

            async def read() -> None:
                async for message in messages:
                    got.append(int(message.body))

            async def write() -> None:
                number = 0
                while True:
                    await here.publish("alarms/x", b"%d" % number)
                    number += 1
                    await asyncio.sleep(0.01)

            async def goes(way: list[str], when: str) -> None:
                await eventually_async(lambda: path_of_alarms(square) == way, f"on its way {way} {when}", 40.0)

            async def comes() -> None:
                before = len(got)
                await eventually_async(lambda: len(got) > before + 20, "messages coming")

            running = [asyncio.create_task(read()), asyncio.create_task(write())]
            direct, around = ["a", "b", "d"], ["a", "c", "d"]
            for change, way in (
                (None, direct),
                (("PUT", "/emulation/b?latency=80ms"), around),
                (("DELETE", "/emulation/b"), direct),
                (("PUT", "/emulation/b?cut=true"), around),
                (("DELETE", "/emulation/b"), direct),
            ):
                if change is not None:
                    square["a"].ask(change[1], change[0])
                await goes(way, f"after {change}")
                await comes()
            for task in running:
                task.cancel()
        return got

    got = asyncio.run(story())
    assert len(got) == len(set(got))


def test_links_fail_on_demand_only_where_that_was_asked_for(tmp_path: Path) -> None:
    with overlay(tmp_path, {"a-b": 'latency = "1ms"'}) as net:
        with pytest.raises(HTTPError) as refused:
            net["a"].ask("/emulation/b?cut=true", "PUT")
        assert refused.value.code == 403


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/emulation/b?latency=soon", 400),
        ("/emulation/b?loss=2", 400),
        ("/emulation/z?cut=true", 404),
        ("/links/%20", 400),
    ],
)
def test_wrong_wishes_for_links_are_refused(square: RealOverlay, path: str, status: int) -> None:
    with pytest.raises(HTTPError) as refused:
        square["a"].ask(path, "PUT")
    assert refused.value.code == status


def test_a_broker_joins_a_running_network_and_leaves_it_again(tmp_path: Path) -> None:
    with overlay(tmp_path, {"a-b": 'latency = "1ms"'}) as net:
        fresh = Member(net.file, "c", tmp_path, ())
        net.file.write_text(net.file.read_text() + fresh.table() + '\n[[links]]\nends = ["b", "c"]\nlatency = "1ms"\n')
        command = [sys.executable, "-m", "overlane"]
        with fresh.log.open("wb") as log:
            joined = subprocess.Popen(
                [*command, "join", str(net.file), "--name", "c", "--data", str(tmp_path / "c")], stdout=log, stderr=log
            )
        try:
            net.wait_until(lambda: "linked" in fresh.log.read_text(), "joined")

            async def story() -> None:
                got: list[bytes] = []
                async with connect(fresh.mqtt) as there, connect(net["a"].mqtt) as here:
                    messages = there.subscribe("t")

                    async def read() -> None:
                        async for message in messages:
                            got.append(bytes(message.body))

                    reading = asyncio.create_task(read())
                    while not got:
                        await here.publish("t", b"welcome")
                        await asyncio.sleep(0.05)
                    reading.cancel()

            asyncio.run(story())
            net.wait_until(lambda: links(net["b"])["c"]["latency_ms"] is not None, "measured")
            assert links(net["b"])["c"]["state"] == "up"
            shown = subprocess.run([*command, "links", str(net.file)], capture_output=True, text=True, check=True)
            rows = {tuple(line.split()[:3]) for line in shown.stdout.splitlines()}
            assert {("a", "b", "up"), ("b", "a", "up"), ("b", "c", "up"), ("c", "b", "up")} <= rows
            left = subprocess.run(
                [*command, "leave", str(net.file), "--name", "c"],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            assert (left.returncode, left.stdout) == (0, "c has left\n")
            assert joined.wait(20) == 0
            net.wait_until(lambda: "c" not in links(net["b"]), "forgotten by its neighbour")
        finally:
            joined.kill()
            joined.wait()
