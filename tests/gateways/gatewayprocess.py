"""A gateway as a process, its broker and a foreign broker, for tests."""

import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from brokers import Overlane, RunningBroker
from forked import ForkedBroker, launch
from overlane.adminapi.views import GatewayView
from overlane.client import connect
from waiting import eventually

WITHIN_S = 30.0


def gateway_table(name: str, to: str, *rules: str, more: str = "") -> str:
    """`rules`: the lines of each [[gateways.topics]]."""
    head = f'[[gateways]]\nname = "{name}"\nbroker = "here"\nto = "{to}"\n{more}\n'
    return head + "\n".join(f"[[gateways.topics]]\n{rule}\n" for rule in rules)


class GatewayProcess:
    """`overlane gateway` of a broker's network file."""

    def __init__(self, broker: Overlane, name: str) -> None:
        self._words = [sys.executable, "-m", "overlane", "gateway", str(broker.directory / "network.toml")]
        self._words += ["--name", name]
        self._log = broker.directory / f"gateway-{name}.txt"
        self._process: ForkedBroker | subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = launch(self._words, self._log)
        eventually(lambda: "ready" in self.log, "the gateway starts", WITHIN_S, lambda: self.log)

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def send_signal(self, number: signal.Signals) -> None:
        assert isinstance(self._process, ForkedBroker)
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if isinstance(process, ForkedBroker):
            process.send_signal(number)
            process.wait(20)


class ProtonBroker(RunningBroker):
    """A broker of AMQP 1.0 made with Qpid Proton, with or without the anonymous relay."""

    def __init__(self, directory: Path, *, has_relay: bool) -> None:
        super().__init__(directory)
        self.has_relay = has_relay

    def command(self) -> list[str]:
        script = str(Path(__file__).parent / "proton_broker.py")
        return [sys.executable, script, self.address, "relay" if self.has_relay else ""]


async def state_of(broker: Overlane, name: str) -> GatewayView:
    """As the gateway, or its will, says now."""
    async with connect(broker.address) as client, client.subscribe(f"$overlane/gateways/{name}") as told:
        async for message in told:
            return msgspec.json.decode(message.body, type=GatewayView)
    raise AssertionError("nothing was told")


def directory_of(path: Path, name: str) -> Path:
    (path / name).mkdir(exist_ok=True)
    return path / name
