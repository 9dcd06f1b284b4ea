"""`overlane up` with [coordination]: ZooKeeper where it is embedded, the file as configuration in it, the brokers, and
routing brokers as many as the leader wants (launcher `local`).

Brokers run without the file: what it says of them is in ZooKeeper. Those that the leader wants besides are called
`routing-auto-1` and so on, and listen on free ports of this machine.
"""

import asyncio
import getpass
import signal
import socket
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path

from overlane.adminapi.supervisor_client import CONTROL_SOCKET
from overlane.cli.brokers.startup_report import StartupReport
from overlane.coordination.access import ENSEMBLE, access_of
from overlane.coordination.client import coordination_client
from overlane.coordination.config_store import push_config
from overlane.coordination.ensemble.running import run_ensemble
from overlane.coordination.records import WANTED, MalformedRecord, WantedRecord, decode
from overlane.coordination.zookeeper import Access
from overlane.errors import ConfigError, OverlaneError, Unavailable
from overlane.local_ports import HOST, free_ports
from overlane.monitor.page_server import LiveOverlay, PageListener, serve_live
from overlane.network.reading import read_network
from overlane.network.schema import EMBEDDED, Coordination, Network
from overlane.node.supervision.control import listening
from overlane.node.supervision.supervisor import Supervisor

LOOK_EVERY_S = 1.0
Tell = Callable[[str, str], None]


def run_two_tiers(
    file: Path,
    network: Network,
    data: Path | None,
    options: list[str],
    tell: Tell,
    report: StartupReport,
    ready: Callable[[str | None], None],
    page: PageListener | None = None,
    *,
    is_chaotic: bool = False,
) -> None:
    """Until Ctrl-C or SIGTERM. `ready` gets the address of the monitor, if there is one. ConfigError, Unavailable."""
    with ExitStack() as stack:
        home = data if data is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with suppress(KeyboardInterrupt):
            asyncio.run(
                _Tiers(file, network, data, home, options, tell, report, ready, page, is_chaotic=is_chaotic).run()
            )


class _Tiers:
    def __init__(
        self,
        file: Path,
        network: Network,
        data: Path | None,
        home: Path,
        options: list[str],
        tell: Tell,
        report: StartupReport,
        ready: Callable[[str | None], None],
        page: PageListener | None,
        *,
        is_chaotic: bool,
    ) -> None:
        """`home` is for the ensemble: it needs a disk also where brokers do without."""
        assert network.coordination is not None
        self._file = file
        self._network = network
        self._coordination: Coordination = network.coordination
        self._data = data
        self._home = home
        self._options = options
        self._tell = tell
        self._report = report
        self._ready = ready
        self._page = page
        self._is_chaotic = is_chaotic
        self._wanted = 0
        self._access: Access | None = None
        self._ports: dict[str, list[int]] = {}
        self._supervisor: Supervisor | None = None
        self._changes: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        task = asyncio.ensure_future(self._run())
        self._report.stop_on_signals(task.cancel, self._end_at_once)
        reporting = asyncio.create_task(self._report.run())
        with suppress(asyncio.CancelledError):
            await task
        reporting.cancel()

    def _end_at_once(self) -> None:
        if self._supervisor is not None:
            self._supervisor.kill_all()

    async def _run(self) -> None:
        self._report.awaited = lambda: f"ZooKeeper ({self._coordination.zookeeper})"
        if self._coordination.zookeeper != EMBEDDED:
            await self._serve(access_of(self._coordination))
            return
        served: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        folder = self._home / ENSEMBLE
        ensemble = asyncio.create_task(
            run_ensemble(
                folder, self._coordination.servers, served.set_result, lambda text: self._tell("zookeeper", text)
            )
        )
        try:
            ensemble.add_done_callback(lambda _: served.cancel())
            with suppress(asyncio.CancelledError):
                await served
            if ensemble.done():
                ensemble.result()
            if served.cancelled():
                raise asyncio.CancelledError
            await self._serve(access_of(self._coordination, self._home))
        finally:
            ensemble.cancel()
            await asyncio.gather(ensemble, return_exceptions=True)

    async def _serve(self, access: Access) -> None:
        self._access = access
        await self._push()
        supervisor = self._supervisor = Supervisor(
            self._file, self._names(), self._data, self._options, self._tell, self._words
        )
        self._report.awaited = supervisor.awaited
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
        launching = asyncio.create_task(self._launch(supervisor))
        try:
            async with AsyncExitStack() as stack:
                if self._is_chaotic and self._data is not None:
                    await stack.enter_async_context(listening(supervisor, self._data / CONTROL_SOCKET))
                address: str | None = None
                if self._page is not None:
                    watched = LiveOverlay(self._network, self._file.name, self._page, self._is_chaotic, supervisor)
                    address = await stack.enter_async_context(serve_live(watched))
                await supervisor.run(lambda: self._report.ready(lambda: self._ready(address)))
        finally:
            launching.cancel()
            await asyncio.gather(launching, return_exceptions=True)

    # Brokers

    def _names(self) -> list[str]:
        own = [one.name for one in self._network.brokers if one.name not in self._network.absent_at_start()]
        tier = self._network.routing
        there = sum(one.role == "routing" for one in self._network.brokers)
        more = max(0, max(self._wanted, tier.brokers_min) - there) if tier.launcher == "local" else 0
        return own + [f"routing-auto-{number}" for number in range(1, more + 1)]

    def _words(self, name: str) -> list[str]:
        assert self._access is not None
        coordination = self._coordination
        words = ["--name", name, "--zookeeper", self._access.hosts, "--path", coordination.path]
        words += ["--relative-to", str(self._file.absolute().parent)]
        for option, value in (
            ("--zookeeper-user", coordination.user),
            ("--zookeeper-password", coordination.password_file),
            ("--zookeeper-ca", coordination.ca),
            ("--zookeeper-certificate", coordination.certificate),
            ("--zookeeper-key", coordination.key),
        ):
            words += [option, value] if value is not None else []
        if name not in [one.name for one in self._network.brokers]:
            if name not in self._ports:
                self._ports[name] = free_ports(3)
            mqtt, overlay, admin = self._ports[name]
            words += ["--role", "routing", "--mqtt", f"{HOST}:{mqtt}"]
            words += ["--overlay", f"{HOST}:{overlay}", "--admin", f"{HOST}:{admin}"]
        return words

    async def _launch(self, supervisor: Supervisor) -> None:
        """Follow the number that the leader wants."""
        assert self._access is not None
        while True:
            try:
                async with coordination_client(self._access, None) as session:
                    while True:
                        node = await session.read(WANTED)
                        wanted = 0 if node is None else decode(WANTED, node.data, WantedRecord).routing
                        if wanted != self._wanted:
                            self._wanted = wanted
                            await supervisor.set_names(self._names())
                        await asyncio.sleep(LOOK_EVERY_S)
            except (Unavailable, MalformedRecord) as error:
                self._tell("launcher", str(error))
                await asyncio.sleep(LOOK_EVERY_S)

    # The configuration

    async def _push(self) -> None:
        assert self._access is not None
        async with coordination_client(self._access, None) as session:
            await push_config(session, self._file.read_text(), f"{getpass.getuser()}@{socket.gethostname()}")

    def _reload(self) -> None:
        try:
            self._network = read_network(self._file)
        except (ConfigError, Unavailable) as error:
            self._tell("up", f"configuration unchanged: {error.with_code()}")
            return
        task = asyncio.ensure_future(self._follow_file())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    async def _follow_file(self) -> None:
        assert self._supervisor is not None
        try:
            await self._push()
        except OverlaneError as error:
            self._tell("up", f"configuration unchanged: {error.with_code()}")
            return
        await self._supervisor.set_names(self._names())
