"""Two tiers of Overlane in bench/wan.py: edges find the routing broker and each other by ZooKeeper, at the router.

    python _wan_tiers.py ADDRESS DIRECTORY CONFIGURATION BROKER...

is what runs there: a ZooKeeper server, the configuration in it, and the routing broker, which is the command BROKER.
`overlane zookeeper` listens on the loopback interface alone, so connections to ADDRESS are passed on to it. What edges
and ZooKeeper tell each other passes the same paths as messages do.
"""

import asyncio
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from _peers import Overlane
from _wan_peers import ADMIN, CLIENTS, LINKS, Command, Place, System
from _wan_scenarios import Scenario

ZOOKEEPER = 2181
ROUTER = "router"
OVERLANE = [sys.executable, "-m", "overlane"]
READ_BYTES = 65536


@dataclass(frozen=True, slots=True)
class OverlaneTiers(System):
    """Each edge is in a domain of its own. Nobody is told of any link: edges dial the routing broker, and each other
    while a deadline is not met through it."""

    peer = Overlane()

    def cannot(self, scenario: Scenario) -> str | None:
        return None if ROUTER in scenario.sites else "there is no site for a routing tier"

    def broker(self, place: Place, site: str) -> Command:
        zookeeper = f"{place.addresses[ROUTER]}:{ZOOKEEPER}"
        is_router = site == ROUTER
        listens = ["--overlay", f"{place.addresses[site]}:{LINKS}", "--admin", f"127.0.0.1:{ADMIN}"]
        words = [*OVERLANE, "broker", "--name", site, "--zookeeper", zookeeper, *listens]
        words += ["--data", str(place.of(site) / "data")]
        if not is_router:
            return Command([*words, "--role", "edge", "--domain", site, "--mqtt", f"127.0.0.1:{CLIENTS}"], {})
        file = place.of(site) / "configuration.toml"
        file.write_text(self._configuration(place))
        script = [sys.executable, str(Path(__file__)), zookeeper, str(place.of(site)), str(file)]
        return Command([*script, *words, "--role", "routing"], {})

    @staticmethod
    def _configuration(place: Place) -> str:
        secret = place.directory / "secret"
        secret.write_text("bench-wan-bench-wan-bench-wan-bench-wan")
        secret.chmod(0o600)
        lines = ['[topics."alarms/#"]', f'deadline = "{place.scenario.deadline_ms:g}ms"']
        return "\n".join([*lines, "[security]", f'overlay_secret = "{secret}"', ""])


async def serve(address: str, directory: Path, configuration: str, broker: list[str]) -> None:
    words = [*OVERLANE, "zookeeper", "--servers", "1", "--data", str(directory / "zookeeper")]
    ensemble = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    assert ensemble.stdout is not None
    inside = (await ensemble.stdout.readline()).decode().strip()
    push = await asyncio.create_subprocess_exec(*OVERLANE, "config", "push", configuration, "--zookeeper", inside)
    if await push.wait():
        raise SystemExit("the configuration was not pushed")
    # Edges get to ZooKeeper only now: one that starts without a configuration would have links without a secret.
    host, port = address.rsplit(":", 1)
    async with await asyncio.start_server(lambda *pair: _pass_on(inside, *pair), host, int(port)):
        routing = await asyncio.create_subprocess_exec(*broker)
        raise SystemExit(await routing.wait())


async def _pass_on(inside: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    host, port = inside.rsplit(":", 1)
    server_reader, server_writer = await asyncio.open_connection(host, int(port))
    with suppress(OSError):
        await asyncio.gather(_pour(reader, server_writer), _pour(server_reader, writer))


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:]))
