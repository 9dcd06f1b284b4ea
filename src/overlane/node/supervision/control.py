"""Control socket of a supervisor: stops, kills and restarts brokers.

A Unix socket in the data directory that only its owner can open, so no token is needed. One request per connection, a
line of two words, such as `kill denver`; the response is a line: empty if it was done, otherwise the reason why not.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from overlane.errors import Unavailable
from overlane.node.supervision.supervisor import Supervisor

log = logging.getLogger("overlane.node")
LINE_BYTES_MAX = 256
PATH_BYTES_MAX = 100
"""The system takes no longer ones."""


@asynccontextmanager
async def listening(supervisor: Supervisor, path: Path) -> AsyncIterator[None]:
    """Unavailable if there can be no socket there; without one where the path is too long for the system."""
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        log.warning("%s is longer than %d bytes: brokers cannot be stopped through it", path, PATH_BYTES_MAX)
        yield
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            said = await _do(supervisor, (await reader.readline()).decode(errors="replace").split())
            writer.write(f"{said}\n".encode())
            await writer.drain()
        except (OSError, ValueError):
            pass  # who asked has gone, or asks for something endless
        finally:
            writer.close()

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            server = await asyncio.start_unix_server(answer, path, limit=LINE_BYTES_MAX)
        finally:
            os.umask(before)
    except OSError as error:
        raise Unavailable(str(path), error.strerror or str(error)) from None
    try:
        yield
    finally:
        server.close()
        with suppress(OSError):
            path.unlink(missing_ok=True)


async def _do(supervisor: Supervisor, words: list[str]) -> str:
    try:
        match words:
            case ["stop", broker]:
                await supervisor.stop(broker)
            case ["kill", broker]:
                await supervisor.kill(broker)
            case ["restart", broker]:
                await supervisor.restart(broker)
            case _:
                return "allowed are stop, kill and restart, with the name of a broker"
    except Unavailable as reason:
        return str(reason)
    return ""
