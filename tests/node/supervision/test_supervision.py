"""A supervisor: brokers that die are started again; those that are stopped or killed by hand stay down until they are
started, through its socket too."""

import asyncio
import gc
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from brokers import free_port
from overlane.adminapi.supervisor_client import CONTROL_SOCKET, SupervisorClient
from overlane.errors import Unavailable
from overlane.node.supervision.control import listening
from overlane.node.supervision.supervisor import NeverReady, Supervisor
from waiting import eventually_async

pytestmark = pytest.mark.slow

WITHIN_S = 60.0


def network_file(directory: Path, **addresses: str) -> Path:
    """Of one broker, that listens there, and where nothing is said on addresses that are free."""
    listeners = {kind: f"127.0.0.1:{free_port()}" for kind in ("mqtt", "overlay", "admin")} | addresses
    file = directory / "network.toml"
    file.write_text("[brokers.here]\n" + "".join(f'{kind} = "{address}"\n' for kind, address in listeners.items()))
    return file


@asynccontextmanager
async def supervised(directory: Path) -> AsyncIterator[tuple[Supervisor, list[str]]]:
    """One broker that runs, and what is told of it."""
    file = network_file(directory)
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


class StandIns:
    """Processes in place of brokers, which say what they are told to say; and what was told of them."""

    def __init__(self, said: dict[str, str]) -> None:
        self.told: list[str] = []
        self.supervisor = Supervisor(Path("x"), list(said), None, [], lambda _, text: self.told.append(text))
        for name, broker in self.supervisor.brokers.items():
            script = f"import sys; print({said[name]!r}, flush=True); sys.stdin.read()"
            broker.command = [sys.executable, "-S", "-c", script]

    @property
    def are_gone(self) -> bool:
        return not any(broker.is_running for broker in self.supervisor.brokers.values())


@pytest.mark.parametrize("iterations", [*range(12), 20, 40])
def test_what_is_cancelled_at_any_moment_leaves_nothing_behind_and_is_never_ready(
    iterations: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> StandIns:
        found = StandIns({"a": "ready", "b": "ready"})
        running = asyncio.create_task(found.supervisor.run(lambda: found.told.append("all are ready")))
        for _ in range(iterations):
            await asyncio.sleep(0)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return found

    found = asyncio.run(story())
    gc.collect()
    assert found.are_gone
    assert found.told == []
    assert caplog.records == []


def test_one_that_cannot_serve_does_not_make_the_others_ready() -> None:
    async def story() -> StandIns:
        found = StandIns({"a": "ready\nlinked", "b": ""})
        found.supervisor.brokers["b"].command[-1] = "raise SystemExit(1)"
        with pytest.raises(NeverReady):
            await found.supervisor.run(lambda: found.told.append("all are ready"))
        return found

    assert asyncio.run(story()).told == []


def test_who_is_waited_for_is_named_with_the_reason() -> None:
    async def story() -> None:
        names = {"a": "ready\nlinked", "b": "ready\nwaiting  for links to c, d", "c": "ready"} | dict.fromkeys(
            "defgh", ""
        )
        found = StandIns(names)
        running = asyncio.create_task(found.supervisor.run(lambda: None))
        wanted = "b (for links to c, d), c (to link), d (to start), e (to start), f (to start), 2 more"
        await eventually_async(lambda: found.supervisor.awaited() == wanted, "named", WITHIN_S)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    asyncio.run(story())


def test_a_broker_that_dies_is_started_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with supervised(tmp_path) as (supervisor, told):
            broker = supervisor.brokers["here"]
            for times in (1, 2):
                before = broker.process
                assert before is not None
                before.kill()
                await eventually_async(lambda times=times: told.count("ready again") == times, "ready again", WITHIN_S)  # type: ignore[misc]
                assert broker.is_running
                assert broker.process is not before
                assert broker.restarts == times
            assert sum("starts again" in text for text in told) == 2

    asyncio.run(story())


def test_a_broker_that_cannot_serve_ends_the_whole_with_its_own_words(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        file = network_file(tmp_path, mqtt=address)
        supervisor = Supervisor(file, ["here"], None, ["--in-memory"], lambda _, __: None)
        with pytest.raises(NeverReady, match=f"broker here ended with status 1(?s:.*){address}"):
            asyncio.run(asyncio.wait_for(supervisor.run(lambda: None), WITHIN_S))
    assert not supervisor.brokers["here"].is_running


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_that_was_ended_by_hand_stays_down_until_it_is_started(tmp_path: Path, how: str) -> None:
    async def story() -> None:
        async with supervised(tmp_path) as (supervisor, told):
            broker = supervisor.brokers["here"]
            await (supervisor.stop("here") if how == "stop" else supervisor.kill("here"))
            assert not broker.is_running
            await eventually_async(lambda: any("stays down" in text for text in told), "told so", WITHIN_S)
            before = broker.process
            await supervisor.restart("here")
            await eventually_async(lambda: "ready again" in told, "ready again", WITHIN_S)
            assert broker.process is not before
            assert broker.is_running

    asyncio.run(story())


def test_a_broker_that_runs_is_restarted(tmp_path: Path) -> None:
    async def story() -> None:
        async with supervised(tmp_path) as (supervisor, told):
            before = supervisor.brokers["here"].process
            await supervisor.restart("here")
            await eventually_async(lambda: "ready again" in told, "ready again", WITHIN_S)
            assert supervisor.brokers["here"].process is not before

    asyncio.run(story())


def test_a_supervisor_is_reached_through_its_socket_by_its_owner_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with supervised(tmp_path) as (supervisor, _):
            path = tmp_path / CONTROL_SOCKET
            async with listening(supervisor, path):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
                control = SupervisorClient(path)
                await control.kill("here")
                assert not supervisor.brokers["here"].is_running
                await control.restart("here")
                await eventually_async(lambda: supervisor.brokers["here"].is_running, "it runs", WITHIN_S)
                await control.stop("here")
                with pytest.raises(Unavailable, match="not run here"):
                    await control.kill("nobody")
                with pytest.raises(Unavailable, match="allowed are"):
                    await control.kill("here and there")
            assert not path.exists()
            with pytest.raises(Unavailable, match="does not answer"):
                await control.kill("here")

    asyncio.run(story())
