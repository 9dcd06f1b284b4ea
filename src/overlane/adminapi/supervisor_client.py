"""Client of the control socket of `overlane up`: stops, kills and restarts brokers.

One request per connection, a line of two words such as `kill denver`. The response is a line: empty if it was done,
otherwise the reason why not. The socket is readable by its owner alone, so no token is needed.
"""

import asyncio
from pathlib import Path

from overlane.errors import Unavailable

CONTROL_SOCKET = "control.sock"
"""Name of the socket in the data directory."""
TIMEOUT_S = 20.0
"""A broker may take this long to shut down."""


class SupervisorClient:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def stop(self, broker: str) -> None:
        await self._request("stop", broker)

    async def kill(self, broker: str) -> None:
        await self._request("kill", broker)

    async def restart(self, broker: str) -> None:
        await self._request("restart", broker)

    async def _request(self, verb: str, broker: str) -> None:
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
            try:
                writer.write(f"{verb} {broker}\n".encode())
                async with asyncio.timeout(TIMEOUT_S):
                    response = (await reader.readline()).decode()
            finally:
                writer.close()
        except (OSError, TimeoutError) as error:
            raise Unavailable("overlane up", f"does not answer at {self._path}: {error}") from None
        if response.strip() or not response:
            raise Unavailable("overlane up", response.strip() or "it ended")
