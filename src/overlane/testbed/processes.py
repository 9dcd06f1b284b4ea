"""The brokers of a network as processes on this machine, each link as slow as the file says.

Each broker gets addresses of its own on the loopback interface, whatever the file says, so that a trial disturbs
nothing that runs. The links are emulated at their senders, and can be changed while they run.
"""

import asyncio
import http.client
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

from msgspec import structs

from overlane.errors import Unavailable
from overlane.network import Network, format_network
from overlane.network.schema import Broker, Endpoint
from overlane.network.units import format_duration, format_rate

START_S = 60.0
HOST = "127.0.0.1"


class Processes:
    """All brokers of a network; `directory` holds their file, records and logs."""

    def __init__(self, network: Network, directory: Path) -> None:
        self.network = structs.replace(network, brokers=tuple(_relocated(broker) for broker in network.brokers))
        self._directory = directory
        self._file = directory / "network.toml"
        self._file.write_text(format_network(self.network))
        self._running: dict[str, Process] = {}
        self._brokers = {broker.name: broker for broker in self.network.brokers}

    def mqtt(self, name: str) -> str:
        return str(self._brokers[name].mqtt)

    async def start_all(self) -> None:
        """All that are there at the start; Unavailable if they do not all come up and link."""
        absent = self.network.absent_at_start()
        names = [name for name in self._brokers if name not in absent]
        for name in names:
            await self.start(name)
        try:
            await asyncio.wait_for(asyncio.gather(*(self._told(name, "linked") for name in names)), START_S)
        except TimeoutError:
            raise Unavailable("the brokers", f"not all linked within {START_S:g} s; see {self._directory}") from None

    async def start(self, name: str) -> None:
        with self._log(name).open("wb") as log:
            self._running[name] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "overlane", "broker", str(self._file), "--name", name),
                *("--data", str(self._directory / name), "--emulate", "--chaos", "--log-level", "warning"),
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def kill(self, name: str) -> None:
        """As a power cut would."""
        process = self._running.pop(name, None)
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def end(self) -> None:
        await asyncio.gather(*(self.kill(name) for name in list(self._running)))

    # Links

    async def slow(self, one: str, other: str, latency_ns: int) -> None:
        await self._emulate(one, other, latency=format_duration(latency_ns))

    async def lose(self, one: str, other: str, loss: float) -> None:
        link = next(link for link in self.network.links if set(link.ends) == {one, other})
        rate = {} if link.rate_bps is None else {"rate": format_rate(link.rate_bps)}
        await self._emulate(one, other, latency=format_duration(link.latency_ns), loss=repr(loss), **rate)

    async def cut(self, one: str, other: str) -> None:
        await self._emulate(one, other, cut="true")

    async def heal(self, one: str, other: str) -> None:
        await self._both(one, other, "DELETE", "")

    async def _emulate(self, one: str, other: str, **conditions: str) -> None:
        await self._both(one, other, "PUT", "?" + urlencode(conditions))

    async def _both(self, one: str, other: str, method: str, query: str) -> None:
        """Each direction of a link is its sender's; one that does not run does not send."""
        for at, peer in ((one, other), (other, one)):
            if at in self._running:
                await asyncio.to_thread(self._ask, at, method, f"/emulation/{peer}{query}")

    def _ask(self, name: str, method: str, path: str) -> None:
        admin = self._brokers[name].admin
        assert admin is not None
        connection = http.client.HTTPConnection(admin.host, admin.port, timeout=5)
        try:
            connection.request(method, path)
            status = connection.getresponse().status
        except OSError as error:
            raise Unavailable(name, f"its admin API does not answer: {error}") from None
        finally:
            connection.close()
        if status >= 300:
            raise Unavailable(name, f"its admin API answers {method} {path} with status {status}")

    # What they say

    async def _told(self, name: str, word: str) -> None:
        """Until the broker has said a word; Unavailable if it ends before."""
        while word not in (text := self._log(name).read_text(errors="replace")):
            process = self._running[name]
            if process.returncode is not None:
                raise Unavailable(f"broker {name}", f"ended with status {process.returncode}\n{text.rstrip()}")
            await asyncio.sleep(0.05)

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"


def _relocated(broker: Broker) -> Broker:
    mqtt, overlay, admin = (Endpoint(HOST, port) for port in _free_ports(3))
    return structs.replace(
        broker, mqtt=mqtt, overlay=overlay, admin=admin, mqtt_tls=None, websocket=None, websocket_tls=None, reach=None
    )


_given: set[int] = set()


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has, and that were not given away before."""
    ports: list[int] = []
    while len(ports) < count:
        with closing(socket.socket()) as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
        if port not in _given:
            _given.add(port)
            ports.append(port)
    return ports
