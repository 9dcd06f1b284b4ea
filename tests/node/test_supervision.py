"""A supervisor by hand: brokers that are stopped or killed stay down until they are started, through its socket too."""

import asyncio
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from brokers import free_port
from overlane.errors import Unavailable
from overlane.node.control import CONTROL, Control, listening
from overlane.node.supervisor import Supervisor

WITHIN_S = 60.0


@asynccontextmanager
async def supervised(directory: Path) -> AsyncIterator[tuple[Supervisor, list[str]]]:
    """One broker that runs, and what is told of it."""
    file = directory / "network.toml"
    addresses = "".join(f'{kind} = "127.0.0.1:{free_port()}"\n' for kind in ("mqtt", "overlay", "admin"))
    file.write_text(f"[brokers.here]\n{addresses}")
    told: list[str] = []
    supervisor = Supervisor(file, ["here"], None, ["--in-memory"], lambda _, text: told.append(text))
    ready = asyncio.Event()
    running = asyncio.create_task(supervisor.run(ready.set))
    try:
        await asyncio.wait_for(ready.wait(), WITHIN_S)
        yield supervisor, told
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def eventually(holds: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.02)
    assert holds(), what


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_that_was_ended_by_hand_stays_down_until_it_is_started(tmp_path: Path, how: str) -> None:
    async def story() -> None:
        async with supervised(tmp_path) as (supervisor, told):
            ward = supervisor.wards["here"]
            await (supervisor.stop("here") if how == "stop" else supervisor.kill("here"))
            assert not ward.is_running
            await eventually(lambda: any("stays down" in text for text in told), "told so")
            before = ward.process
            await supervisor.restart("here")
            await eventually(lambda: "ready again" in told, "ready again")
            assert ward.process is not before
            assert ward.is_running

    asyncio.run(story())


def test_a_broker_that_runs_is_restarted(tmp_path: Path) -> None:
    async def story() -> None:
        async with supervised(tmp_path) as (supervisor, told):
            before = supervisor.wards["here"].process
            await supervisor.restart("here")
            await eventually(lambda: "ready again" in told, "ready again")
            assert supervisor.wards["here"].process is not before

    asyncio.run(story())


def test_a_supervisor_is_reached_through_its_socket_by_its_owner_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with supervised(tmp_path) as (supervisor, _):
            path = tmp_path / CONTROL
            async with listening(supervisor, path):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
                control = Control(path)
                await control.kill("here")
                assert not supervisor.wards["here"].is_running
                await control.restart("here")
                await eventually(lambda: supervisor.wards["here"].is_running, "it runs")
                await control.stop("here")
                with pytest.raises(Unavailable, match="not run here"):
                    await control.kill("nobody")
                with pytest.raises(Unavailable, match="allowed are"):
                    await control.kill("here and there")
            assert not path.exists()
            with pytest.raises(Unavailable, match="does not answer"):
                await control.kill("here")

    asyncio.run(story())
